"""Entries and logs for the tests of the replication core."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from db.replication import AppendRequest, MemoryLog, ReplicaState, epoch_before
from myqueue.protocol.chain import GENESIS


@dataclass(frozen=True, slots=True)
class TextEntry:
    """An entry whose payload is a word."""

    epoch: int
    text: str
    request_index: int = 0
    request_count: int = 1
    chain: bytes = b""

    def chain_after(self, previous: bytes) -> bytes:
        return hashlib.sha256(previous + f"{self.epoch}/{self.text}/{self.request_index}/{self.request_count}".encode()).digest()


def chained(entries: list[TextEntry], previous: bytes = GENESIS) -> list[TextEntry]:
    """The entries with their chains."""
    out = []
    for entry in entries:
        previous = entry.chain_after(previous)
        out.append(TextEntry(entry.epoch, entry.text, entry.request_index, entry.request_count, previous))
    return out


def log_of(*epochs: int, start: int = 0, words: str = "") -> MemoryLog:
    """A log with one entry per epoch; the text of an entry is its place and epoch (or a letter of ``words``), so equal borders mean equal logs."""
    entries = chained([TextEntry(epoch, words[place] if words else f"{place}.{epoch}") for place, epoch in enumerate(epochs)])
    log = MemoryLog(list(entries))
    if start:
        log.compact(start)
    return log


def request_from(log: MemoryLog, position: int, *, epoch: int, end: int | None = None, commit: int = 0, round: int = 0) -> AppendRequest:
    """What a leader with this log sends from a border on."""
    return AppendRequest(epoch, position, epoch_before(log, position), log.between(position, log.end if end is None else end), commit, round)


def replica(promised: int = 1, commit: int = 0, **more: object) -> ReplicaState:
    """A follower's state on the disk "disk-a"."""
    return ReplicaState(promised_epoch=promised, commit=commit, disk_id="disk-a", **more)


def carry_out(log: MemoryLog, plan: object) -> None:
    """Write a plan as a shell does."""
    if plan.delete_from is not None:
        log.truncate(plan.delete_from)
    if plan.insert:
        assert log.end == plan.insert_at
        log.entries.extend(plan.insert)
