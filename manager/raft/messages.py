"""What managers say to each other, and its JSON. Data from outside that does not fit is a BadRequestError."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from db.replication import AppendReply, AppendRequest, Hint, OfferedStart, Refusal
from manager.raft.log import WalEntry
from myqueue.errors import BadRequestError

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """May I lead in ``term``? With ``pre`` it asks whether the vote would be given, and changes nothing."""

    term: int
    candidate: int
    last_term: int
    last_index: int
    pre: bool = False


@dataclass(frozen=True, slots=True)
class VoteReply:
    """The answer; ``asked`` and ``pre`` repeat the question, ``term`` is the answering manager's own."""

    term: int
    asked: int
    pre: bool
    granted: bool
    disk_id: str


@dataclass(frozen=True, slots=True)
class Append:
    """The leader's append; answered by the replication core's AppendReply."""

    leader: int
    request: AppendRequest


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """The leader's applied state, for a manager behind the leader's log. Answered by an AppendReply for ``start.position``."""

    term: int
    leader: int
    start: OfferedStart
    state: Any  # JSON; the membership in force at ``start`` is part of it
    round: int = 0


Request = VoteRequest | Append | InstallSnapshot
Reply = VoteReply | AppendReply


class Envelope(NamedTuple):
    """A message on its way."""

    source: int
    target: int
    message: Request | Reply


def entry_to_json(entry: WalEntry) -> list[Any]:
    return [entry.index, entry.term, entry.command, entry.client_id, entry.client_seq, entry.chain.hex()]


def entry_from_json(value: list[Any]) -> WalEntry:
    index, term, command, client_id, client_seq, chain = value
    if not isinstance(command, dict):
        raise TypeError("a command is an object")
    return WalEntry(int(index), int(term), command, client_id, client_seq, bytes.fromhex(chain))


def request_to_json(request: Request) -> Json:
    """A request as JSON; ``kind`` says which."""
    if isinstance(request, VoteRequest):
        return {"kind": "vote", "term": request.term, "candidate": request.candidate, "last_term": request.last_term,
                "last_index": request.last_index, "pre": request.pre}
    if isinstance(request, Append):
        inner = request.request
        return {"kind": "append", "leader": request.leader, "term": inner.epoch, "prev_index": inner.position, "prev_term": inner.prev_epoch,
                "entries": [entry_to_json(entry) for entry in inner.entries], "commit_index": inner.commit, "round": inner.round}
    start = request.start
    return {"kind": "snapshot", "term": request.term, "leader": request.leader, "index": start.position, "index_term": start.epoch,
            "chain": start.chain.hex(), "state": request.state, "round": request.round}


def request_from_json(value: Json) -> Request:
    """The request that was sent.

    Raises:
        BadRequestError: it is not one.
    """
    readers: dict[str, Callable[[Json], Request]] = {"vote": _vote, "append": _append, "snapshot": _snapshot}
    return _read(value, readers)


def reply_to_json(reply: Reply) -> Json:
    """A reply as JSON; ``kind`` says which."""
    if isinstance(reply, VoteReply):
        return {"kind": "vote_reply", "term": reply.term, "asked": reply.asked, "pre": reply.pre, "granted": reply.granted, "disk_id": reply.disk_id}
    return {"kind": "append_reply", "term": reply.epoch, "disk_id": reply.disk_id, "prev_index": reply.position, "round": reply.round,
            "match_index": reply.matched, "refusal": reply.refusal, "hint": None if reply.hint is None else [reply.hint.end, reply.hint.next]}


def reply_from_json(value: Json) -> Reply:
    """The reply that was sent.

    Raises:
        BadRequestError: it is not one.
    """
    readers: dict[str, Callable[[Json], Reply]] = {"vote_reply": _vote_reply, "append_reply": _append_reply}
    return _read(value, readers)


def _read(value: Any, readers: dict[str, Callable[[Json], Any]]) -> Any:
    try:
        return readers[value["kind"]](value)
    except (KeyError, TypeError, ValueError) as error:
        raise BadRequestError(f"not a message between managers: {error!r}") from error


def _vote(value: Json) -> VoteRequest:
    return VoteRequest(int(value["term"]), int(value["candidate"]), int(value["last_term"]), int(value["last_index"]), value["pre"] is True)


def _append(value: Json) -> Append:
    position = _natural(value["prev_index"])
    entries = tuple(entry_from_json(entry) for entry in value["entries"])
    if any(entry.index != position + place for place, entry in enumerate(entries, start=1)):
        raise ValueError("the entries' indexes do not follow from prev_index")
    return Append(int(value["leader"]), AppendRequest(int(value["term"]), position, _natural(value["prev_term"]), entries,
                                                      _natural(value["commit_index"]), int(value["round"])))


def _snapshot(value: Json) -> InstallSnapshot:
    start = OfferedStart(_natural(value["index"]), _natural(value["index_term"]), bytes.fromhex(value["chain"]))
    return InstallSnapshot(int(value["term"]), int(value["leader"]), start, value["state"], int(value["round"]))


def _vote_reply(value: Json) -> VoteReply:
    return VoteReply(int(value["term"]), int(value["asked"]), value["pre"] is True, value["granted"] is True, str(value["disk_id"]))


def _append_reply(value: Json) -> AppendReply:
    matched, refusal, hint = value["match_index"], value["refusal"], value["hint"]
    return AppendReply(int(value["term"]), str(value["disk_id"]), _natural(value["prev_index"]), int(value["round"]),
                       matched=None if matched is None else _natural(matched), refusal=None if refusal is None else Refusal(refusal),
                       hint=None if hint is None else Hint(_natural(hint[0]), _natural(hint[1])))


def _natural(value: Any) -> int:
    number = int(value)
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number
