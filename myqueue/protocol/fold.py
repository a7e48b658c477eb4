"""What a partition's log says about producers, consumers and its own beginning: the deterministic fold that every replica makes.

State is folded request by request, in log order, each exactly once. Who decides something (is this a duplicate, what is
this consumer's next message) takes the folded state plus the requests behind it, so that a truncated tail needs no undo.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..errors import LogFaultError
from .chain import NO_PRODUCER, OFFSET_COMMIT, RECORDS, TRIM, EntryHead, canonical_json
from .types import CommitStamp

RECENT_REQUESTS = 8  # of a producer, whose first offset is still known; as many may be in flight
REQUEST_TTL_US = 300_000_000  # a dequeue's request_id is known for 5 minutes of append time


class StoredRequest(NamedTuple):
    """One request of a producer, where it was stored."""

    seq: int
    base_offset: int
    lsn: int
    record_count: int
    append_time: int


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer in one partition."""

    epoch: int
    last_seq: int
    recent: tuple[StoredRequest, ...]  # oldest first, at most RECENT_REQUESTS
    append_time: int

    def find(self, seq: int) -> StoredRequest | None:
        """The stored request with this sequence, if it is still known."""
        return next((request for request in self.recent if request.seq == seq), None)


def after_request(before: ProducerState | None, epoch: int, request: StoredRequest) -> ProducerState:
    """The producer's state once this request is stored. A new epoch forgets the requests of the old one."""
    recent = before.recent if before is not None and before.epoch == epoch else ()
    return ProducerState(epoch, request.seq, (*recent, request)[-RECENT_REQUESTS:], request.append_time)


class ConsumerState(NamedTuple):
    """A consumer in one partition."""

    next_offset: int  # the first one not consumed
    generation: int
    lsn: int  # the entry that says so
    append_time: int
    handed_end: int = 0  # what lies below, from next_offset on, may be in the hands of a group's member; 0: nobody has said so
    deaths: int = 0  # how often a member ended without a word that had this one message in its hands
    committer: int = 0  # who stamped its commit last, and how; 0: nobody has
    sequence: int = 0

    @property
    def is_alone(self) -> bool:
        """Whether the next message, and no other, was in somebody's hands."""
        return self.handed_end == self.next_offset + 1

    def has(self, stamp: CommitStamp | None) -> bool:
        """Whether a commit with this stamp, or a later one of the same client, has been taken."""
        return stamp is not None and stamp.is_past(CommitStamp(self.committer, self.sequence))


class HandedOut(NamedTuple):
    """What a dequeue with a request_id handed out."""

    message_offset: int
    append_time: int


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """The body of a consumer-offset entry. A dequeue says also which message it handed out, and for which request; a group's member may
    say up to where it hands messages out from now on, and a client may stamp its commits.
    """

    consumer: str
    next_offset: int
    generation: int = 0
    message_offset: int | None = None
    request_id: str | None = None
    handed_end: int | None = None
    committer: int | None = None
    sequence: int | None = None

    @property
    def stamp(self) -> CommitStamp | None:
        return None if self.committer is None or self.sequence is None else CommitStamp(self.committer, self.sequence)

    def to_body(self) -> bytes:
        """Canonical JSON; what is None is left out."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return canonical_json({name: value for name, value in fields.items() if value is not None})

    @classmethod
    def from_body(cls, body: bytes) -> OffsetCommit:
        """Raises LogFaultError where the log holds something else."""
        try:
            return cls(**json.loads(body))
        except (ValueError, TypeError):
            raise LogFaultError(f"an offset commit that cannot be read: {body[:80]!r}") from None


def after_commit(before: ConsumerState | None, commit: OffsetCommit, *, lsn: int, append_time: int) -> ConsumerState:
    """The consumer's state once this entry is folded, which is of no older generation.

    A newer generation that begins at the same offset takes over from one that did not say that it let go. Where that one had the next message
    alone in its hands this is its death, and counted once; where it had several nobody knows which it was, and they stay suspect until somebody
    hands them out. Whoever moves on, or commits without a word of what it hands out, has nothing in its hands. The last stamp stays until
    there is another one.
    """
    handed_end = deaths = 0
    if before is not None and commit.next_offset == before.next_offset:
        deaths = before.deaths
        if commit.generation > before.generation:
            handed_end, deaths = (0, deaths + 1) if before.is_alone else (before.handed_end, deaths)
    stamp = commit.stamp or (CommitStamp(0, 0) if before is None else CommitStamp(before.committer, before.sequence))
    return ConsumerState(commit.next_offset, commit.generation, lsn, append_time, commit.handed_end or handed_end, deaths, *stamp)


@dataclass(frozen=True, slots=True)
class Trim:
    """The body of a trim entry: records below ``start_offset`` are not served any more, and may be deleted."""

    start_offset: int

    def to_body(self) -> bytes:
        """Canonical JSON."""
        return canonical_json({"start_offset": self.start_offset})

    @classmethod
    def from_body(cls, body: bytes) -> Trim:
        """Raises LogFaultError where the log holds something else."""
        try:
            return cls(int(json.loads(body)["start_offset"]))
        except (ValueError, TypeError, KeyError):
            raise LogFaultError(f"a trim that cannot be read: {body[:80]!r}") from None


@dataclass(slots=True)
class LogState:
    """The folded state of a partition, or the part of it that a decision needs. What the maps hold is immutable."""

    producers: dict[int, ProducerState] = field(default_factory=dict)
    consumers: dict[str, ConsumerState] = field(default_factory=dict)
    requests: dict[tuple[str, str], HandedOut] = field(default_factory=dict)
    trim_offset: int = 0  # records below are not served any more; it never falls

    def copy(self) -> LogState:
        return LogState(dict(self.producers), dict(self.consumers), dict(self.requests), self.trim_offset)

    def fold(self, first: EntryHead, record_count: int, body: bytes | None) -> None:
        """Take in one whole request.

        Args:
            first: the head of its first entry.
            record_count: the records of all its entries.
            body: of an offset commit or a trim.
        """
        if first.kind == RECORDS and first.producer_id != NO_PRODUCER:
            stored = StoredRequest(first.producer_seq, first.base_offset, first.lsn, record_count, first.append_time)
            self.producers[first.producer_id] = after_request(self.producers.get(first.producer_id), first.producer_epoch, stored)
        elif first.kind == OFFSET_COMMIT:
            assert body is not None
            self._fold_commit(first, OffsetCommit.from_body(body))
        elif first.kind == TRIM:
            assert body is not None
            self.trim_offset = max(self.trim_offset, Trim.from_body(body).start_offset)

    def _fold_commit(self, head: EntryHead, commit: OffsetCommit) -> None:
        before = self.consumers.get(commit.consumer)
        if before is not None and (commit.generation < before.generation or before.has(commit.stamp)):
            return  # of a member of an older generation, or overtaken by a later one of its client
        self.consumers[commit.consumer] = after_commit(before, commit, lsn=head.lsn, append_time=head.append_time)
        if commit.request_id is not None and commit.message_offset is not None:
            self.requests[commit.consumer, commit.request_id] = HandedOut(commit.message_offset, head.append_time)

    def changed_since(self, before: LogState) -> LogState:
        """The part of this state that differs from ``before``; the trim offset as it is now."""
        return replace(self, producers=_changed(self.producers, before.producers), consumers=_changed(self.consumers, before.consumers),
                       requests=_changed(self.requests, before.requests))


def _changed(now: dict, before: dict) -> dict:
    return {key: value for key, value in now.items() if before.get(key) is not value}
