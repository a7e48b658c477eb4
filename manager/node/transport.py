"""Calls between managers, one method a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from manager.node import messages, snapshots
from manager.node.wal import Answered
from manager.raft import messages as raft
from manager.raft.life import LifeSign
from manager.raft.log import Proposal
from myqueue.client.transport import Transport, call
from myqueue.errors import BadRequestError, MyQueueError, UnavailableError
from myqueue.protocol import routes

FORWARDED = {routes.FORWARDED: "1"}


@dataclass(frozen=True, slots=True)
class Identity:
    """Which disk a manager has, and what is on it."""

    node_id: int
    disk_id: str
    cluster_id: str | None
    end_index: int
    term: int
    database: dict[str, Any]


class Told(NamedTuple):
    """What another manager answers to heartbeats."""

    version: int  # its applied index
    nodes: list[tuple[str, int, float]]  # (type, actor_id, age in seconds) of the nodes that it has heard of
    sign: LifeSign | None


class Peers:
    """The other managers, by node id. Every call is bounded; an error names the manager that failed."""

    def __init__(self, transport: Transport, urls: Mapping[int, str], *, timeout_seconds: float) -> None:
        """``urls`` are the addresses that the settings give; they go before those of the members in the log."""
        self._transport, self._settled, self._urls, self._timeout_seconds = transport, dict(urls), dict(urls), timeout_seconds

    def follow(self, members: Mapping[int, str]) -> None:
        """Know the addresses of the members as the log has them."""
        self._urls = {**members, **self._settled}

    def url(self, node_id: int) -> str:
        """Raises UnavailableError where neither the settings nor the log name it."""
        url = self._urls.get(node_id)
        if url is None:
            raise UnavailableError(f"the address of manager {node_id} is not known here", component=f"manager-{node_id}")
        return url

    def identity(self, node_id: int) -> Identity:
        return _identity(self._call(node_id, "GET", routes.I_IDENTITY, None, repeatable=True))

    def identity_at(self, url: str) -> Identity:
        """Who listens at an address. Raises BadRequestError where that is no manager."""
        return _identity(call(self._transport, "GET", url + routes.I_IDENTITY, headers=FORWARDED, read_timeout_seconds=self._timeout_seconds,
                              repeatable=True))

    def ask(self, node_id: int, request: raft.Request, *, timeout_seconds: float) -> raft.Reply:
        """A message of the elections or the log, and its answer."""
        if isinstance(request, raft.VoteRequest):
            body = self._call(node_id, "POST", routes.I_RAFT_VOTE, raft.vote_to_json(request), timeout_seconds=timeout_seconds, repeatable=True)
            return raft.vote_reply_from_json(body)
        if isinstance(request, raft.TimeoutNow):
            body = self._call(node_id, "POST", routes.I_RAFT_TIMEOUT_NOW, raft.timeout_now_to_json(request), timeout_seconds=timeout_seconds,
                              repeatable=True)
            return raft.timeout_now_reply_from_json(body)
        if isinstance(request, raft.InstallSnapshot):
            body = self._call(node_id, "POST", routes.I_RAFT_SNAPSHOT, snapshots.offer_to_json(request), timeout_seconds=timeout_seconds,
                              repeatable=True)
            return messages.reply_from_json(body)
        assert isinstance(request, raft.Append), request
        body = self._call(node_id, "POST", routes.I_RAFT_APPEND, messages.append_to_json(request), timeout_seconds=timeout_seconds,
                          repeatable=True)
        return messages.reply_from_json(body)

    def propose(self, node_id: int, proposal: Proposal, *, timeout_seconds: float) -> Answered:
        """Pass a proposal on, once: who gets it never passes it on again."""
        body = {"command": proposal.command, "client_id": proposal.client_id, "client_seq": proposal.client_seq}
        answer = self._call(node_id, "POST", routes.I_PROPOSE, body, timeout_seconds=timeout_seconds)
        return Answered(answer["index"], answer["reply"])

    def heartbeats(self, node_id: int, heard: Sequence[tuple[str, int, float]], *, sign: LifeSign | None = None, fresh: bool = False) -> Told:
        """Tell who was heard of, and this manager's own sign of life; answers the same of the other one.

        With ``fresh`` the other one is the leader, and its index is at least what was committed when it was asked.
        """
        body: dict[str, Any] = {"heartbeats": [{"type": kind, "actor_id": actor_id, "age_seconds": age} for kind, actor_id, age in heard]}
        if fresh:
            body["fresh"] = True
        if sign is not None:
            body["sign"] = messages.sign_to_json(sign)
        answer = self._call(node_id, "POST", routes.I_HEARTBEATS, body, repeatable=True)
        nodes = [(one["type"], one["actor_id"], one["age_seconds"]) for one in answer.get("nodes", ())]
        return Told(answer["version"], nodes, messages.sign_from_json(answer["sign"]) if answer.get("sign") else None)

    def change_members(self, node_id: int, method: str, path: str, body: Mapping[str, Any] | None, *, timeout_seconds: float) -> dict[str, Any]:
        """Pass a request to change the members on, once."""
        return self._call(node_id, method, path, body, timeout_seconds=timeout_seconds)

    def health(self, node_id: int) -> dict[str, Any]:
        return self._call(node_id, "GET", routes.HEALTH, None, repeatable=True)

    def register_broker(self, node_id: int, body: Mapping[str, Any], *, timeout_seconds: float) -> dict[str, Any]:
        return self._call(node_id, "POST", routes.I_BROKERS, dict(body), timeout_seconds=timeout_seconds)

    def _call(self, node_id: int, method: str, path: str, body: Any, *, timeout_seconds: float | None = None, repeatable: bool = False) -> Any:
        try:
            return call(self._transport, method, self.url(node_id) + path, json=body, headers=FORWARDED,
                        read_timeout_seconds=timeout_seconds or self._timeout_seconds, repeatable=repeatable)
        except MyQueueError as error:
            raise named(error, f"manager-{node_id}") from error


def _identity(body: Any) -> Identity:
    try:
        return Identity(body["node_id"], body["disk_id"], body["cluster_id"], body["end_index"], body["term"], body["database"])
    except (KeyError, TypeError):
        raise BadRequestError("what listens there is no manager") from None


def named(error: MyQueueError, component: str) -> MyQueueError:
    """The error with the component that failed, in its message and details; as it is where it names one already."""
    if "component" in error.details:
        return error
    told = type(error)(f"{component}: {error.message}")
    told.details = {**error.details, "component": component}
    return told
