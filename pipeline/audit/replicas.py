"""Comparison of a partition's replicas with one another, by chains: an entry's chain stands for all entries up to it.

Each replica's chain is recomputed by itself (``log_checks``), so that equal chains at one lsn mean equal logs up to it, and where they
differ a bisection finds the first entry that does: some twenty look-ups in a log of a million entries, never a scan.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from myqueue.errors import MyQueueError
from myqueue.protocol.types import PartitionId, PartitionInfo

from ..cluster import Cluster
from ..databases import Databases, Limits, rows_of
from ..source.planner import database_of
from .findings import Finding, Skipped

LOOKS_MAX = 4

# What is committed and there. The head of a replica that is being seeded speaks of a position that its entries have not reached yet.
SPANS = """
SELECT s.topic_id, s.partition, s.start_lsn, least(c.commit_lsn, s.end_lsn) AS end_lsn, least(c.commit_offset, s.end_offset) AS end_offset
FROM partition_state s JOIN partition_commit c USING (topic_id, partition)
WHERE s.topic_id = ANY(%(topic_ids)s) AND s.seeding_until IS NULL
"""

ENTRIES = """
SELECT e.topic_id, e.partition, e.chain, e.base_offset
FROM unnest(%(topic_ids)s::bigint[], %(partitions)s::integer[], %(lsns)s::bigint[]) AS asked (topic_id, partition, lsn)
JOIN log_entry e USING (topic_id, partition, lsn)
"""


@dataclass(frozen=True, slots=True)
class Span:
    """The committed entries that a replica holds; ends are exclusive."""

    start_lsn: int
    end_lsn: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Entry:
    """What of an entry is compared, and the offset at which its records begin."""

    chain: bytes
    base_offset: int


@dataclass(slots=True)
class Comparison:
    """What the comparison of replicas found."""

    findings: list[Finding] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


class _Gone(Exception):
    """An entry cannot be had: retention has moved the beginning of the log since its span was read, or its database does not answer now."""


def compare_replicas(cluster: Cluster, by_broker: Mapping[int, Sequence[PartitionInfo]], limits: Limits) -> Comparison:
    """Compare the replicas of each partition with one another, up to the lowest committed end among them.

    Args:
        by_broker: the replicas to compare. One that is damaged by itself is not to be among them: that is told already.
    """
    found, brokers = Comparison(), _Brokers(cluster, limits)
    left = {_id(info): info for infos in by_broker.values() for info in infos}
    holders = {broker_id: {_id(info) for info in infos} for broker_id, infos in by_broker.items()}
    try:
        for _ in range(LOOKS_MAX):
            spans: dict[PartitionId, dict[int, Span]] = {id_: {} for id_ in left}
            for broker_id in sorted(holders):
                try:
                    for id_, span in brokers.spans(broker_id, holders[broker_id] & left.keys()).items():
                        spans[id_][broker_id] = span
                except MyQueueError as error:
                    found.skipped.append(Skipped(f"broker-{broker_id}", "comparison of its replicas", error.message))
                    del holders[broker_id]
            left = _compare(brokers, left, spans, found)
            if not left:
                break
    finally:
        brokers.close()
    found.skipped += [Skipped("brokers", f"{info.topic}/{info.partition}", "its replicas were not compared: entries could not be had")
                      for info in left.values()]
    return found


def odd_ones(chains: Mapping[int, bytes], leader: int | None) -> tuple[int, list[int]]:
    """Which replica the others are held against, and those that differ from it.

    What most replicas have is right; where no chain has most, the leader's is.
    """
    def rank(broker_id: int) -> tuple[int, bool, int]:
        same = sum(chain == chains[broker_id] for chain in chains.values())
        return (same if 2 * same > len(chains) else 0), broker_id == leader, -broker_id

    right = max(chains, key=rank)
    return right, sorted(broker_id for broker_id, chain in chains.items() if chain != chains[right])


def _compare(brokers: _Brokers, infos: Mapping[PartitionId, PartitionInfo], spans: Mapping[PartitionId, Mapping[int, Span]],
             found: Comparison) -> dict[PartitionId, PartitionInfo]:
    """Judge all partitions; those of which an entry could not be had are given back, to be looked at again."""
    last = {id_: min(span.end_lsn for span in held.values()) - 1 for id_, held in spans.items() if len(held) > 1}
    last = {id_: lsn for id_, lsn in last.items() if lsn >= max(span.start_lsn for span in spans[id_].values())}  # else nothing is held by all
    asked = sorted({broker_id for id_ in last for broker_id in spans[id_]})
    entries = {broker_id: brokers.entries(broker_id, {id_: lsn for id_, lsn in last.items() if broker_id in spans[id_]}) for broker_id in asked}
    gone = {}
    for id_ in last:
        try:
            chains = {broker_id: _there(entries[broker_id], id_).chain for broker_id in spans[id_]}
            right, odd = odd_ones(chains, infos[id_].leader)
            for broker_id in odd:
                found.findings.append(_divergence(brokers, infos[id_], spans[id_], broker_id, right, last[id_]))
        except _Gone:
            gone[id_] = infos[id_]
    return gone


def _divergence(brokers: _Brokers, info: PartitionInfo, spans: Mapping[int, Span], odd: int, right: int, last_lsn: int) -> Finding:
    """Where a replica leaves the way of another: the first entry whose chain differs, of which all after it differ too."""
    id_ = _id(info)

    def entry(broker_id: int, lsn: int) -> Entry:
        return _there(brokers.entries(broker_id, {id_: lsn}), id_)

    lsns = range(max(spans[odd].start_lsn, spans[right].start_lsn), last_lsn)
    lsn = lsns.start + bisect_left(lsns, True, key=lambda lsn: entry(odd, lsn).chain != entry(right, lsn).chain)
    return Finding("replica_divergence", f"broker-{odd}", info.topic, info.partition, lsn, entry(odd, lsn).base_offset, spans[odd].end_offset,
                   f"from here on it is not what broker-{right} has" + (", which leads" if right == info.leader else ""))


def _there(entries: Mapping[PartitionId, Entry], id_: PartitionId) -> Entry:
    if id_ not in entries:
        raise _Gone
    return entries[id_]


def _id(info: PartitionInfo) -> PartitionId:
    return PartitionId(info.topic_id, info.partition)


class _Brokers:
    """Look-ups in the brokers' databases, each over a connection that stays open."""

    def __init__(self, cluster: Cluster, limits: Limits) -> None:
        self._cluster, self._databases = cluster, Databases(limits)

    def spans(self, broker_id: int, partitions: Collection[PartitionId]) -> dict[PartitionId, Span]:
        """What of these partitions can be compared there."""
        with self._databases.snapshot(database_of(self._cluster, broker_id)) as cursor:
            rows = rows_of(cursor, SPANS, {"topic_ids": sorted({id_.topic_id for id_ in partitions})})
        spans = {PartitionId(row["topic_id"], row["partition"]): Span(row["start_lsn"], row["end_lsn"], row["end_offset"]) for row in rows}
        return {id_: span for id_, span in spans.items() if id_ in partitions}

    def entries(self, broker_id: int, lsns: Mapping[PartitionId, int]) -> dict[PartitionId, Entry]:
        """An entry of each partition; those that cannot be had are missing. A database that does not answer is told by the next look at its spans."""
        asked = {"topic_ids": [id_.topic_id for id_ in lsns], "partitions": [id_.partition for id_ in lsns], "lsns": list(lsns.values())}
        try:
            with self._databases.snapshot(database_of(self._cluster, broker_id)) as cursor:
                rows = rows_of(cursor, ENTRIES, asked)
        except MyQueueError:  # also a segment that was dropped under the statement
            return {}
        return {PartitionId(row["topic_id"], row["partition"]): Entry(row["chain"], row["base_offset"]) for row in rows}

    def close(self) -> None:
        self._databases.close()
