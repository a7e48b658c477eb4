"""What managers say to each other, and the JSON of votes and snapshots (that of appends is the replication core's messages').

Data from outside that does not fit is a BadRequestError.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, TypeVar

from db.replication import AppendReply, AppendRequest, OfferedStart
from manager.raft.life import Seen
from myqueue.errors import BadRequestError
from myqueue.protocol.chain import CHAIN_BYTES

Json = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """May I lead in ``term``? With ``pre`` it asks whether the vote would be given, and changes nothing."""

    term: int
    candidate: int
    last_term: int
    last_index: int
    pre: bool = False
    disk_id: str = ""  # the candidate's
    life: int = 0
    lives: Seen = field(default_factory=dict, hash=False)  # what the candidate has seen of others, the voter among them


@dataclass(frozen=True, slots=True)
class VoteReply:
    """The answer; ``asked`` and ``pre`` repeat the question, ``term`` is the answering manager's own."""

    term: int
    asked: int
    pre: bool
    granted: bool
    disk_id: str
    life: int = 0


@dataclass(frozen=True, slots=True)
class Append:
    """The leader's append; answered by the replication core's AppendReply."""

    leader: int
    request: AppendRequest
    lives: Seen = field(default_factory=dict, hash=False)  # what the leader has seen of others, the follower among them


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """The leader's applied state, for a manager behind the leader's log. Answered by an AppendReply for ``start.position``."""

    term: int
    leader: int
    start: OfferedStart
    state: Any  # JSON; the membership in force at ``start`` is part of it
    round: int = 0


@dataclass(frozen=True, slots=True)
class TimeoutNow:
    """The leader of ``term`` hands over (thesis 3.10): ask for votes now, as if the election timeout had passed."""

    term: int
    leader: int


@dataclass(frozen=True, slots=True)
class TimeoutNowReply:
    """Whether it will be done; ``term`` is the answering manager's own."""

    term: int
    taken: bool


Request = VoteRequest | Append | InstallSnapshot | TimeoutNow
Reply = VoteReply | AppendReply | TimeoutNowReply


class Envelope(NamedTuple):
    """A message on its way."""

    source: int
    target: int
    message: Request | Reply


def vote_to_json(request: VoteRequest) -> Json:
    return asdict(request)


def vote_from_json(body: Any) -> VoteRequest:
    """Raises BadRequestError where it is none."""
    return _checked(lambda: VoteRequest(term=_natural(body["term"]), candidate=_natural(body["candidate"]), last_term=_natural(body["last_term"]),
                                        last_index=_natural(body["last_index"]), pre=_truth(body["pre"]),
                                        disk_id=str(body["disk_id"]), life=_natural(body["life"]), lives=seen_from_json(body["lives"])))


def vote_reply_to_json(reply: VoteReply) -> Json:
    return asdict(reply)


def vote_reply_from_json(body: Any) -> VoteReply:
    """Raises BadRequestError where it is none."""
    return _checked(lambda: VoteReply(term=_natural(body["term"]), asked=_natural(body["asked"]), pre=_truth(body["pre"]),
                                      granted=_truth(body["granted"]), disk_id=str(body["disk_id"]), life=_natural(body["life"])))


def timeout_now_to_json(request: TimeoutNow) -> Json:
    return asdict(request)


def timeout_now_from_json(body: Any) -> TimeoutNow:
    """Raises BadRequestError where it is none."""
    return _checked(lambda: TimeoutNow(term=_natural(body["term"]), leader=_natural(body["leader"])))


def timeout_now_reply_to_json(reply: TimeoutNowReply) -> Json:
    return asdict(reply)


def timeout_now_reply_from_json(body: Any) -> TimeoutNowReply:
    """Raises BadRequestError where it is none."""
    return _checked(lambda: TimeoutNowReply(term=_natural(body["term"]), taken=_truth(body["taken"])))


def snapshot_to_json(offer: InstallSnapshot) -> Json:
    start = offer.start
    return {"term": offer.term, "leader": offer.leader, "index": start.position, "index_term": start.epoch, "chain": start.chain.hex(),
            "state": offer.state, "round": offer.round}


def snapshot_from_json(body: Any) -> InstallSnapshot:
    """Raises BadRequestError where it is none."""
    return _checked(lambda: InstallSnapshot(
        term=_natural(body["term"]), leader=_natural(body["leader"]), state=body["state"], round=_natural(body["round"]),
        start=OfferedStart(_natural(body["index"]), _natural(body["index_term"]), _chain(body["chain"]))))


def seen_from_json(body: Any) -> dict[str, int]:
    """Life numbers by disk; to be called where errors of form are caught."""
    return {str(disk_id): _natural(life) for disk_id, life in dict(body).items()}


def _checked(read: Callable[[], T]) -> T:
    try:
        return read()
    except (KeyError, TypeError, ValueError) as error:
        raise BadRequestError(f"the message between managers is not well formed: {error!r}") from None


def _natural(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise TypeError(f"{value!r} is not a term, an index or an id")
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def _chain(value: Any) -> bytes:
    chain = bytes.fromhex(value)
    if len(chain) != CHAIN_BYTES:
        raise ValueError(f"a chain has {CHAIN_BYTES} bytes")
    return chain
