"""The audit of the brokers' logs: survey, plan, execute, judge. Who executes the plan is an argument: Spark, or a plain loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from myqueue.errors import MyQueueError
from myqueue.protocol.types import OffsetRange, PartitionInfo, TopicPartition

from ..cluster import Cluster
from ..databases import Limits, rows_of, snapshot_cursor
from ..source.cuts import CutPartition
from ..source.planner import database_of
from ..source.positions import Position, read_positions
from . import statements
from .consumers import OFFSETS, judge_consumers
from .findings import Finding, Skipped
from .log_checks import Damage, StretchFacts, check_task, finding_of, findings_of, judge_head
from .replicas import compare_replicas
from .stretches import Stretch, plan_stretches, spread

LOOKS_MAX = 4

Execute = Callable[[Sequence[Sequence[Stretch]], Limits], Iterable[StretchFacts]]


@dataclass(frozen=True, slots=True)
class PartitionCoverage:
    """What was checked of one replica."""

    topic: str
    partition: int
    broker_id: int
    leads: bool
    offsets: OffsetRange  # stored and committed
    entries: int
    records: int  # committed, counted


@dataclass(frozen=True, slots=True)
class _Replica:
    info: PartitionInfo
    broker_id: int
    position: Position
    damage: tuple[Damage, ...]  # of its head and of its consumers' offsets


@dataclass(slots=True)
class LogAudit:
    """What the audit of the logs found."""

    partitions: list[PartitionCoverage] = field(default_factory=list)
    cut: list[CutPartition] = field(default_factory=list)  # the leaders' committed ends, at the survey
    findings: list[Finding] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


def audit_logs(cluster: Cluster, partitions: Sequence[PartitionInfo], limits: Limits, execute: Execute, *,
               range_bytes: int, tasks_per_broker: int) -> LogAudit:
    """Check every replica of these partitions. What cannot be reached is skipped and said, never passed over.

    A log may lose its beginning to retention, and uncommitted entries to a new leader, between the survey and the look into it. A replica
    where that can have happened is surveyed and looked into again, a few times; the last look counts.
    """
    audit = LogAudit()
    left = _by_broker(partitions, audit)
    for look in range(1, LOOKS_MAX + 1):
        replicas = _survey(cluster, left, limits, audit)
        stretches = [stretch for replica in replicas for stretch in plan_stretches(
            replica.broker_id, database_of(cluster, replica.broker_id), replica.info.topic, replica.position, range_bytes)]
        facts: dict[tuple[int, str, int], list[StretchFacts]] = {}
        for fact in execute(spread(stretches, tasks_per_broker), limits) if stretches else ():
            facts.setdefault((fact.broker_id, fact.topic, fact.partition), []).append(fact)
        left = {}
        for replica in replicas:
            found = facts.get((replica.broker_id, replica.info.topic, replica.info.partition), [])
            if look < LOOKS_MAX and _may_have_moved(replica, found):
                left.setdefault(replica.broker_id, []).append(replica.info)
            else:
                _conclude(audit, replica, found)
        if not left:
            break
    _compare(cluster, partitions, limits, audit)
    return audit


def execute_here(tasks: Sequence[Sequence[Stretch]], limits: Limits) -> list[StretchFacts]:
    """The plan without Spark: a thread per task, all at once (the plan bounds them per broker)."""
    with ThreadPoolExecutor(max_workers=max(1, len(tasks))) as pool:
        return [fact for facts in pool.map(lambda task: list(check_task(task, limits)), tasks) for fact in facts]


def _compare(cluster: Cluster, partitions: Sequence[PartitionInfo], limits: Limits, audit: LogAudit) -> None:
    """Hold the replicas of each partition against one another, but for those that were found damaged: where the damage is has been said."""
    damaged = {(found.node, found.topic, found.partition) for found in audit.findings if found.check != "consumer_offset"}
    checked = {(one.broker_id, one.topic, one.partition) for one in audit.partitions}
    by_broker: dict[int, list[PartitionInfo]] = {}
    for info in partitions:
        for broker_id in info.replicas:
            if (broker_id, info.topic, info.partition) in checked and (f"broker-{broker_id}", info.topic, info.partition) not in damaged:
                by_broker.setdefault(broker_id, []).append(info)
    found = compare_replicas(cluster, by_broker, limits)
    audit.findings += found.findings
    audit.skipped += found.skipped


def _by_broker(partitions: Sequence[PartitionInfo], audit: LogAudit) -> dict[int, list[PartitionInfo]]:
    """Which replicas each broker should hold; a partition without a leader is said."""
    by_broker: dict[int, list[PartitionInfo]] = {}
    for info in partitions:
        if info.leader is None:
            audit.skipped.append(Skipped("managers", f"{info.topic}/{info.partition}", f"it has no leader now ({info.status})"))
        for broker_id in sorted({*info.replicas, *([] if info.leader is None else [info.leader])}):
            by_broker.setdefault(broker_id, []).append(info)
    return by_broker


def _survey(cluster: Cluster, by_broker: Mapping[int, Sequence[PartitionInfo]], limits: Limits, audit: LogAudit) -> list[_Replica]:
    replicas = []
    for broker_id, infos in sorted(by_broker.items()):
        try:
            replicas += _survey_broker(cluster, broker_id, infos, limits, audit)
        except MyQueueError as error:
            audit.skipped.append(Skipped(f"broker-{broker_id}", f"{len(infos)} partitions", error.message))
    return replicas


def _survey_broker(cluster: Cluster, broker_id: int, infos: Sequence[PartitionInfo], limits: Limits, audit: LogAudit) -> list[_Replica]:
    topic_ids = sorted({info.topic_id for info in infos})
    with snapshot_cursor(database_of(cluster, broker_id), limits) as cursor:
        positions = read_positions(cursor, topic_ids)
        lost = judge_consumers(rows_of(cursor, OFFSETS, {"topic_ids": topic_ids}))
        heads = {(head["topic_id"], head["partition"]): head for head in rows_of(cursor, statements.HEADS, {"topic_ids": topic_ids})}
    replicas = []
    for info in infos:
        at = (info.topic_id, info.partition)
        if at not in heads:
            audit.skipped.append(Skipped(f"broker-{broker_id}", f"{info.topic}/{info.partition}", "the broker does not hold it"))
            continue
        replicas.append(_Replica(info, broker_id, positions[at], (*judge_head(heads[at]), *lost.get(at, []))))  # type: ignore[index]
    return replicas


def _may_have_moved(replica: _Replica, facts: Sequence[StretchFacts]) -> bool:
    """Whether what was found may only mean that the log was changed, rightly, since the survey."""
    commit_lsn = replica.position.commit_lsn or 0
    return any(fact.is_dropped or any(damage.lsn >= commit_lsn for damage in fact.damage) for fact in facts)


def _conclude(audit: LogAudit, replica: _Replica, facts: Sequence[StretchFacts]) -> None:
    info, node = replica.info, f"broker-{replica.broker_id}"
    findings = [finding_of(replica.broker_id, info.topic, info.partition, damage) for damage in replica.damage]
    audit.findings += _without_echoes([*findings, *findings_of(facts)])
    audit.skipped += [Skipped(node, f"{info.topic}/{info.partition} lsn {fact.from_lsn} to {fact.to_lsn - 1}", fact.error)
                      for fact in facts if fact.error]
    _cover(audit, replica, facts)


def _without_echoes(findings: list[Finding]) -> list[Finding]:
    """Where the last entries are missing, the head row contradicts what is left: that is the gap again, not another fault."""
    gaps = {(found.node, found.topic, found.partition, found.lsn) for found in findings if found.check == "gap"}
    return [found for found in findings
            if not (found.check == "head_row" and (found.node, found.topic, found.partition, found.lsn + 1) in gaps)]


def _cover(audit: LogAudit, replica: _Replica, facts: Sequence[StretchFacts]) -> None:
    info, broker_id, stored = replica.info, replica.broker_id, replica.position.stored
    records = sum(fact.committed_records for fact in facts)
    node, complete = f"broker-{broker_id}", not any(fact.error for fact in facts)
    told = any((found.node, found.topic, found.partition) == (node, info.topic, info.partition) and found.check != "consumer_offset"
               for found in audit.findings)
    if complete and not told and records != len(stored):
        audit.findings.append(Finding("count", node, info.topic, info.partition, start_offset=stored.start, end_offset=stored.end,
                                      detail=f"{records} committed records are stored, the committed end says {len(stored)}"))
    audit.partitions.append(PartitionCoverage(info.topic, info.partition, broker_id, info.leader == broker_id, stored,
                                              sum(fact.entries for fact in facts), records))
    if info.leader == broker_id:
        audit.cut.append(CutPartition(TopicPartition(info.topic, info.partition), replica.position.id, replica.position.readable))
