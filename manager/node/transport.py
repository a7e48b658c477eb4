"""Calls between managers, one method a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from manager.node import messages
from manager.node.wal import Answered
from manager.raft import messages as raft
from manager.raft.log import Proposal
from myqueue.client.transport import Transport, call
from myqueue.errors import MyQueueError
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


class Peers:
    """The other managers, by node id. Every call is bounded; an error names the manager that failed."""

    def __init__(self, transport: Transport, urls: Mapping[int, str], *, timeout_seconds: float) -> None:
        self._transport, self._urls, self._timeout_seconds = transport, dict(urls), timeout_seconds

    def url(self, node_id: int) -> str:
        return self._urls[node_id]

    def identity(self, node_id: int) -> Identity:
        body = self._call(node_id, "GET", routes.I_IDENTITY, None, repeatable=True)
        return Identity(body["node_id"], body["disk_id"], body["cluster_id"], body["end_index"], body["term"], body["database"])

    def ask(self, node_id: int, request: raft.Request, *, timeout_seconds: float) -> raft.Reply:
        """A message of the elections or the log, and its answer."""
        if isinstance(request, raft.VoteRequest):
            body = self._call(node_id, "POST", routes.I_RAFT_VOTE, raft.vote_to_json(request), timeout_seconds=timeout_seconds, repeatable=True)
            return raft.vote_reply_from_json(body)
        if isinstance(request, raft.TimeoutNow):
            body = self._call(node_id, "POST", routes.I_RAFT_TIMEOUT_NOW, raft.timeout_now_to_json(request), timeout_seconds=timeout_seconds,
                              repeatable=True)
            return raft.timeout_now_reply_from_json(body)
        assert isinstance(request, raft.Append), request
        body = self._call(node_id, "POST", routes.I_RAFT_APPEND, messages.append_to_json(request), timeout_seconds=timeout_seconds,
                          repeatable=True)
        return messages.reply_from_json(body)

    def propose(self, node_id: int, proposal: Proposal, *, timeout_seconds: float) -> Answered:
        """Pass a proposal on, once: who gets it never passes it on again."""
        body = {"command": proposal.command, "client_id": proposal.client_id, "client_seq": proposal.client_seq}
        answer = self._call(node_id, "POST", routes.I_PROPOSE, body, timeout_seconds=timeout_seconds)
        return Answered(answer["index"], answer["reply"])

    def heartbeats(self, node_id: int, heard: Sequence[tuple[str, int, float]], *,
                   fresh: bool = False) -> tuple[int, list[tuple[str, int, float]]]:
        """Tell who was heard of; answers the other's applied index, and which nodes it has heard of.

        With ``fresh`` the other one is the leader, and its index is at least what was committed when it was asked.
        """
        body: dict[str, Any] = {"heartbeats": [{"type": kind, "actor_id": actor_id, "age_seconds": age} for kind, actor_id, age in heard]}
        if fresh:
            body["fresh"] = True
        answer = self._call(node_id, "POST", routes.I_HEARTBEATS, body, repeatable=True)
        return answer["version"], [(one["type"], one["actor_id"], one["age_seconds"]) for one in answer.get("nodes", ())]

    def health(self, node_id: int) -> dict[str, Any]:
        return self._call(node_id, "GET", routes.HEALTH, None, repeatable=True)

    def register_broker(self, node_id: int, body: Mapping[str, Any], *, timeout_seconds: float) -> dict[str, Any]:
        return self._call(node_id, "POST", routes.I_BROKERS, dict(body), timeout_seconds=timeout_seconds)

    def _call(self, node_id: int, method: str, path: str, body: Any, *, timeout_seconds: float | None = None, repeatable: bool = False) -> Any:
        try:
            return call(self._transport, method, self._urls[node_id] + path, json=body, headers=FORWARDED,
                        read_timeout_seconds=timeout_seconds or self._timeout_seconds, repeatable=repeatable)
        except MyQueueError as error:
            raise named(error, f"manager-{node_id}") from error


def named(error: MyQueueError, component: str) -> MyQueueError:
    """The error with the component that failed, in its message and details; as it is where it names one already."""
    if "component" in error.details:
        return error
    told = type(error)(f"{component}: {error.message}")
    told.details = {**error.details, "component": component}
    return told
