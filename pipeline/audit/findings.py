"""What an audit says: findings with a place, what could not be checked, and the exit code that follows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

CLEAN, FINDINGS, INCOMPLETE, USAGE = 0, 1, 2, 3  # exit codes

# Each check's stable name, with what it means when it is found.
CHECKS = {
    "gap": "entries are missing: the lsns are not contiguous",
    "offset_gap": "the offsets of two neighbouring entries do not meet",
    "count": "the committed records are not as many as the committed end says",
    "chain_content": "an entry's content does not match its chain: one of them was changed",
    "chain_value": "an entry's stored chain was changed; its content is intact",
    "consumer_offset": "a consumer's offset lies past the end of the log",
    "order": "an epoch or an append time is lower than the one before it",
    "commit_position": "the committed end is not the border of an entry, or lies outside the log",
    "head_row": "the head row contradicts the last entry",
    "fault": "the broker itself has declared this log at fault and serves it no longer",
    "replica_divergence": "a replica holds other entries than the others, each in itself without fault",
    "wal_gap": "a manager's WAL misses an index",
    "wal_chain": "an entry of a manager's WAL does not match its chain",
    "wal_command": "a manager's WAL holds a command that is not known",
    "wal_fold": "a manager's metadata tables are not what its WAL folds to",
    "wal_divergence": "two managers' WALs differ at the same committed index",
    "snapshot_missing": "a manager's WAL begins behind an index of which no snapshot is kept",
    "snapshot_digest": "a manager's snapshot does not match its digest, or lies at another place than it says",
    "snapshot_fold": "a manager's snapshot is not what its WAL folds to at that index",
    "snapshot_divergence": "two managers' snapshots differ at the same index",
    "state_digest": "two managers' metadata differ at the same index",
}

OF_LOGS = frozenset({"gap", "offset_gap", "count", "chain_content", "chain_value", "order", "commit_position", "head_row", "fault",
                     "replica_divergence", "consumer_offset"})


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One thing that is wrong, with its place: of a log (topic, partition, lsn, offsets) or of a manager (node, WAL index, table)."""

    check: str
    node: str
    topic: str = ""
    partition: int = -1
    lsn: int = -1
    start_offset: int = -1
    end_offset: int = -1
    detail: str = ""

    @property
    def id(self) -> str:
        """The same for the same thing in every audit: of the check and the place, not of the words."""
        place = (self.check, self.node, self.topic, self.partition, self.lsn, self.start_offset, self.end_offset)
        return hashlib.sha256("\0".join(map(str, place)).encode()).hexdigest()[:12]

    def remedy(self) -> str:
        """The command that helps now: have a replica made again from the others, reset what is only a pointer, or look again."""
        if self.check == "consumer_offset":
            return f"myqueue lag {self.topic} CONSUMER_ID, then commit an offset inside the log"
        if self.check in OF_LOGS:
            return f"myqueue topics repair {self.topic} --partition {self.partition} --broker-id {self.node.removeprefix('broker-')}"
        return f"myqueue health, and compare {self.node} with the other managers in audit.json"

    def order(self) -> tuple:
        """How a report sorts: by place."""
        return self.node, self.topic, self.partition, self.lsn, self.check, self.detail

    def place(self) -> str:
        """Where, for people."""
        where = [self.node]
        if self.topic:
            where.append(f"{self.topic}/{self.partition}")
        if self.lsn >= 0:
            where.append(f"{'lsn' if self.topic else 'index'} {self.lsn}")
        if self.start_offset >= 0:
            where.append(f"offsets {self.start_offset}-{self.end_offset - 1}" if self.end_offset > self.start_offset + 1
                         else f"offset {self.start_offset}")
        return " ".join(where)


@dataclass(frozen=True, slots=True, order=True)
class Skipped:
    """Something that could not be checked, and why. An audit with one of these is never clean."""

    node: str
    what: str
    why: str


def exit_code(findings: Sequence[Finding], skipped: Sequence[Skipped]) -> int:
    """Findings count more than what was left out: both are shown."""
    return FINDINGS if findings else INCOMPLETE if skipped else CLEAN
