"""The write manager's care for consumer groups: members that fell silent go, and partitions are shared anew where that is due.

One thread, in the driver's process, while this manager leads. Everything it decides is a command that may be refused or repeated.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from db.metadata_store import HeartbeatStore
from manager.catalogue import Catalogue, Group
from manager.cluster import commands
from manager.cluster.sharing import expired
from manager.groups import MEMBER, Groups, reader_of
from manager.replica import Replica
from myqueue.clock import Clock
from myqueue.errors import MyQueueError

LOOK_SECONDS = 1.0
_log = logging.getLogger(__name__)


class GroupKeeper:
    """Used by one thread."""

    def __init__(self, *, propose: Callable[[commands.Command], dict[str, Any]], groups: Groups, replica: Replica, store: HeartbeatStore,
                 clock: Clock) -> None:
        self._propose, self._groups, self._replica, self._store, self._clock = propose, groups, replica, store, clock
        self._seen: dict[int, float] = {}  # since when a member is known here: a new leader, and a new member, wait a whole session
        self._holding: dict[int, float] = {}  # since when a member owns what it is to release
        self._shared: dict[int, tuple[Any, ...]] = {}  # by group: as of what its partitions were found to be shared as they should be

    def run(self, leading: threading.Event, stopping: threading.Event) -> None:
        led = False
        while not stopping.wait(LOOK_SECONDS):
            if not leading.is_set():
                led = False
                continue
            if not led:
                self._seen, self._holding, self._shared, led = {}, {}, {}, True
            try:
                self.turn()
            except MyQueueError as error:
                _log.warning("groups: %s", error.message, extra={"code": error.code})

    def turn(self) -> None:
        """One look at all groups; what fails for one keeps none of the others from theirs."""
        catalogue = self._replica.catalogue()
        members = [member for group in catalogue.groups.values() for member in group.members.values()]
        if not members:
            self._seen, self._holding, self._shared = {}, {}, {}
            return
        now = self._clock.monotonic()
        self._seen = {member.member_id: self._seen.get(member.member_id, now) for member in members}
        self._holding = {member.member_id: self._holding.get(member.member_id, now) for member in members if set(member.owned) - set(member.wanted)}
        heard = {row.actor_id: row.age_seconds for row in self._store.rows((MEMBER,))}
        silent = {member_id: min(heard.get(member_id, now - since), now - since) for member_id, since in self._seen.items()}
        for group in catalogue.groups.values():
            if group.members:
                try:
                    self._care(group, catalogue, silent, {member_id: now - since for member_id, since in self._holding.items()})
                except MyQueueError as error:
                    _log.warning("group %s: %s", group.name, error.message, extra={"code": error.code})

    def _care(self, group: Group, catalogue: Catalogue, silent: dict[int, float], holding: dict[int, float]) -> None:
        gone = expired([reader_of(member) for member in group.members.values()], silent, holding)
        if gone:
            _log.warning("group %s: member %s fell silent, or did not release what it was to", group.name, ", ".join(map(str, gone)))
            self._propose(commands.LeaveGroup(group.group_id, gone))
            catalogue = self._replica.catalogue()
            if group.name not in catalogue.groups:
                return
            group = catalogue.groups[group.name]
        now = _what_sharing_goes_by(group, catalogue)
        if self._shared.get(group.group_id) != now and not self._groups.share(group, catalogue):
            self._shared[group.group_id] = now


def _what_sharing_goes_by(group: Group, catalogue: Catalogue) -> tuple[Any, ...]:
    """Looked at every second: what costs more is done when this is another one."""
    names = sorted({name for member in group.members.values() for name in member.topics})
    topics = [catalogue.topics.get(name) for name in names]
    return group.row.generation, tuple((topic.topic_id, len(topic.partitions)) for topic in topics if topic is not None)
