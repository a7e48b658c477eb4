"""Appends between managers as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from db.replication import AppendReply, AppendRequest, Hint, Refusal
from db.wal import WalEntry
from manager.raft.life import LifeSign
from manager.raft.messages import Append, seen_from_json
from myqueue.errors import BadRequestError

T = TypeVar("T")


def append_to_json(append: Append) -> dict[str, Any]:
    request = append.request
    entries = [{"term": entry.term, "command": entry.command, "client_id": entry.client_id, "client_seq": entry.client_seq,
                "chain": entry.chain.hex()} for entry in request.entries]  # type: ignore[attr-defined]
    return {"leader": append.leader, "term": request.epoch, "position": request.position, "prev_term": request.prev_epoch, "commit": request.commit,
            "round": request.round, "lives": dict(append.lives), "entries": entries}


def append_from_json(body: Any) -> Append:
    """Raises BadRequestError where it is none."""
    return _checked(lambda: Append(_integer(body["leader"]), AppendRequest(
        epoch=_integer(body["term"]), position=_integer(body["position"]), prev_epoch=_integer(body["prev_term"]),
        entries=tuple(_entry(index, item) for index, item in enumerate(body["entries"], body["position"] + 1)),
        commit=_integer(body["commit"]), round=_integer(body["round"])), seen_from_json(body["lives"])))


def reply_to_json(reply: AppendReply) -> dict[str, Any]:
    return {"term": reply.epoch, "disk_id": reply.disk_id, "position": reply.position, "round": reply.round, "matched": reply.matched,
            "refusal": reply.refusal, "hint": None if reply.hint is None else {"end": reply.hint.end, "next": reply.hint.next},
            "counts": reply.counts, "life": reply.life}


def reply_from_json(body: Any) -> AppendReply:
    """Raises BadRequestError where it is none."""
    return _checked(lambda: AppendReply(
        epoch=_integer(body["term"]), disk_id=str(body["disk_id"]), position=_integer(body["position"]), round=_integer(body["round"]),
        matched=None if body["matched"] is None else _integer(body["matched"]),
        refusal=None if body["refusal"] is None else Refusal(body["refusal"]),
        hint=None if body["hint"] is None else Hint(_integer(body["hint"]["end"]), _integer(body["hint"]["next"])),
        counts=body["counts"] is True, life=_integer(body["life"])))


def sign_to_json(sign: LifeSign) -> dict[str, Any]:
    return {"node_id": sign.node_id, "disk_id": sign.disk_id, "life": sign.life, "seen": dict(sign.seen)}


def sign_from_json(body: Any) -> LifeSign:
    """Raises BadRequestError where it is none."""
    return _checked(lambda: LifeSign(_integer(body["node_id"]), str(body["disk_id"]), _integer(body["life"]),
                                     seen_from_json(body["seen"])))


def _entry(index: int, item: Any) -> WalEntry:
    if not isinstance(item["command"], dict):
        raise TypeError("a command must be an object")
    chain = bytes.fromhex(item["chain"])
    if len(chain) != 32:
        raise ValueError("a chain has 32 bytes")
    client_id, client_seq = item["client_id"], item["client_seq"]
    return WalEntry(index, _integer(item["term"]), item["command"], None if client_id is None else str(client_id),
                    None if client_seq is None else _integer(client_seq), chain)


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise TypeError(f"{value!r} is not a position")
    return value


def _checked(read: Callable[[], T]) -> T:
    try:
        return read()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadRequestError(f"the message between managers is not well formed: {error}") from None
