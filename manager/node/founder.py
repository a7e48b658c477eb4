"""The very first start: one manager writes who the first members are, if nobody has a log."""

from __future__ import annotations

import logging
import uuid

from manager.cluster import commands
from manager.node.transport import Identity, Peers
from manager.node.wal import Wal
from manager.raft.bootstrap import plan_bootstrap
from myqueue.errors import MyQueueError, RefusedError

_log = logging.getLogger(__name__)


class Founder:
    """Runs on the manager with the lowest number until there is a log."""

    def __init__(self, wal: Wal, peers: Peers, *, node_id: int, managers: tuple[int, ...]) -> None:
        self._wal, self._peers, self._node_id = wal, peers, node_id
        self._others = tuple(other for other in managers if other != node_id)
        self._done = node_id != min(managers)

    def turn(self) -> bool:
        """Found the group, if this manager is to and may now; True if it just did.

        All other managers must have answered that their disks are empty: one that holds a log shows that this disk was emptied. Then
        this manager founds nothing and gets that log from whoever leads, but it does not vote: its disk is not a member's.
        """
        if self._done:
            return False
        with self._wal.deciding() as desk:
            state, empty = desk.held.state, desk.held.log.end == 0
        if not empty or state.current_term:
            self._done = True
            return False
        identities = self._identities()
        if identities is None:
            return False
        disks = {self._node_id: state.disk_id, **{known.node_id: known.disk_id for known in identities}}
        members = tuple(commands.Member(node_id, self._peers.url(node_id), disk_id) for node_id, disk_id in sorted(disks.items()))
        self._done = True
        try:
            with self._wal.deciding() as desk:
                desk.write(plan_bootstrap(desk.held, commands.to_json(commands.InitCluster(str(uuid.uuid4()), members))))
        except RefusedError:
            return False  # a leader was there first
        _log.info("founded a group of %d manager(s)", len(members))
        return True

    def _identities(self) -> list[Identity] | None:
        """All others, each with an empty disk; None until that is known."""
        found = []
        for node_id in self._others:
            try:
                found.append(self._peers.identity(node_id))
            except MyQueueError as error:
                _log.info("waiting for all managers before the first start: %s", error.message)
                return None
        for known in found:
            if known.end_index or known.cluster_id or known.term:
                _log.critical("manager %d holds a log and this manager's disk is empty: no group is founded; this disk has no vote", known.node_id)
                self._done = True
                return None
        return found
