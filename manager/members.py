"""Who belongs to the managers: what an operator may ask for. The rules are the Raft core's; the driver decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from manager.cluster import commands
from manager.node.mailbox import Mailbox
from manager.node.role import Role
from manager.node.transport import Identity, Peers
from manager.replica import Replica
from myqueue.clock import Clock
from myqueue.errors import BadRequestError, ConflictError, MyQueueError, NotFoundError, NotLeaderError, OutcomeUnknownError
from myqueue.protocol import routes
from myqueue.protocol.limits import URL_MAX


class Members:
    """Adds and removes managers. At a read manager each request is passed on once."""

    def __init__(self, *, mailbox: Mailbox, replica: Replica, peers: Peers, identity_at: Callable[[str], Identity], role: Role, clock: Clock,
                 timeout_seconds: float) -> None:
        """
        Args:
            identity_at: asks who listens at an address, and tells it nothing secret.
        """
        self._mailbox, self._replica, self._peers, self._identity_at = mailbox, replica, peers, identity_at
        self._role, self._clock, self._timeout_seconds = role, clock, timeout_seconds

    def add(self, node_id: int, url: str, *, forwarded: bool) -> dict[str, Any]:
        """Add the manager that runs at an address. It gets the log from now on, and the write manager gives it a vote when it has caught up.

        Where it is a member at this address already, nothing changes.

        Raises:
            BadRequestError: nobody listens there, or no manager.
            ConflictError: another node listens there, it belongs to another cluster, or the number is a member's at another address.
            RefusedError: another membership change is under way, or too few managers answer; nothing was changed.
            OutcomeUnknownError: look at the members before asking again.
        """
        url = checked_url(url)
        if not self._decides(forwarded):
            return self._pass_on("POST", routes.MANAGERS, {"node_id": node_id, "url": url})
        known = {member.node_id: member for member in self._replica.current().members}
        if node_id not in known:
            disk_id = self._new_disk(node_id, url)
            self._change(commands.SetMember(node_id, url, disk_id, voter=False))
        elif url not in (known[node_id].url, self._peers.url(node_id)):
            raise ConflictError(f"manager {node_id} is a member at {self._peers.url(node_id)}: remove it first")
        member = next((one for one in self._replica.current().members if one.node_id == node_id), None)
        if member is None:
            raise ConflictError(f"manager {node_id} was removed again meanwhile")
        return {"node_id": node_id, "url": member.url, "voter": member.voter, "disk_id": member.disk_id}

    def remove(self, node_id: int, *, forwarded: bool) -> None:
        """Remove a manager from the group. It is to be stopped afterwards: it would go on answering reads, ever older ones.

        Raises:
            NotFoundError: it is no member.
            RefusedError: it is the last voter, another change is under way, or too few of those left answer; nothing was changed.
            OutcomeUnknownError: look at the members before asking again.
        """
        if not self._decides(forwarded):
            self._pass_on("DELETE", routes.MANAGER.format(node_id=node_id), None)
            return
        if node_id not in {member.node_id for member in self._replica.current().members}:
            raise NotFoundError(f"there is no manager {node_id}", node_id=node_id)
        self._change(commands.RemoveMember(node_id))

    def _decides(self, forwarded: bool) -> bool:
        """Whether it is decided here. Raises NotLeaderError rather than have a request passed on twice."""
        if self._role.is_write_manager:
            return True
        if forwarded:
            raise NotLeaderError(f"manager {self._role.node_id} is not the write manager; nothing was done", leader=self._role.leader())
        return False

    def _pass_on(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        return self._peers.change_members(self._role.require_leader(), method, path, body, timeout_seconds=2 * self._timeout_seconds)

    def _new_disk(self, node_id: int, url: str) -> str:
        """The disk of the manager at this address, if it may become a member."""
        try:
            found = self._identity_at(url)
        except MyQueueError as error:
            raise BadRequestError(f"no manager answers at {url}: {error.message}", url=url) from error
        if found.node_id != node_id:
            raise ConflictError(f"manager {found.node_id} listens at {url}, not manager {node_id}")
        if found.cluster_id not in (None, self._replica.cluster_id()) or (found.cluster_id is None and found.end_index):
            raise ConflictError(f"manager {node_id} at {url} belongs to another cluster: it needs an empty database, and must be started with the "
                                "managers that are there in --managers")
        return found.disk_id

    def _change(self, command: commands.SetMember | commands.RemoveMember) -> None:
        """Have it decided, and wait until it is applied here."""
        end = self._clock.monotonic() + self._timeout_seconds
        index = self._mailbox.ask(commands.to_json(command), timeout_seconds=self._timeout_seconds)
        if not self._replica.wait_for(index, max(0.1, end - self._clock.monotonic())):
            raise OutcomeUnknownError("no majority of the managers took the membership change in time; look at the members before asking again")


def checked_url(url: Any) -> str:
    """An address as managers have it. Raises BadRequestError."""
    if not isinstance(url, str) or not url.startswith(("http://", "https://")) or len(url) > URL_MAX or not url.isprintable() or "@" in url:
        raise BadRequestError("url must look like http://host:port", argument="url")
    return url.rstrip("/")
