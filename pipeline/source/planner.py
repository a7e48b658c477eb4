"""From options to ranges: asks the cluster and the brokers' databases once, and takes the cut."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from myqueue.errors import BadRequestError, ConflictError, LogFaultError, UnavailableError
from myqueue.protocol.types import OffsetRange, PartitionId, PartitionInfo, TopicPartition

from ..cluster import Cluster, DatabaseAddress, fetch_cluster
from ..databases import Limits, Look, limits_of, snapshot_cursor
from .cuts import Cut, CutPartition, cut_of, narrowed
from .edges import ByPartition, Edge
from .filters import NO_PRUNING, Pruning
from .options import FOLLOWER, LEADER, ReadOptions
from .positions import Position, days_of, offset_at, read_positions
from .ranges import ReadRange, cut_to, pack, plan_ranges, split_to

Located = dict[TopicPartition, tuple[DatabaseAddress, Position]]
Times = Mapping[TopicPartition, int | None]
T = TypeVar("T")


def retrying(options: ReadOptions, attempt: Callable[[], T]) -> T:
    """Look something up; what is unavailable now (a leader that moves) is asked for again, as often as ``fetchOffset.numRetries`` says."""
    for _ in range(options.offset_retries):
        try:
            return attempt()
        except UnavailableError:
            time.sleep(options.offset_retry_interval_seconds)
    return attempt()


def plan_read(options: ReadOptions, pruning: Pruning = NO_PRUNING) -> list[tuple[ReadRange, ...]]:
    """The ranges of a read by task, in the order of topic, partition and offset; with ``fileBytes`` of topic, day, partition and offset.

    Raises:
        BadRequestError: a topic, partition or offset that was asked for is not there.
        ConflictError: the cut names a topic that was made anew since.
        UnavailableError: a partition has no leader now, or a database cannot be reached.
    """
    located = retrying(options, lambda: locate(options, pruning))
    starts, ends = (edge_offsets(edge, located, options) for edge in (options.starting, options.ending))
    wanted: dict[TopicPartition, OffsetRange] = {}
    for name, (_, position) in sorted(located.items()):
        readable = position.readable
        at = _at_cut(options.cut, name, position).offsets if options.cut else readable
        start, end = (edge.resolve(name, at, times.get(name), strict=options.fail_on_data_loss)
                      for edge, times in ((options.starting, starts), (options.ending, ends)))
        offsets = OffsetRange(start, max(start, end))
        if options.fail_on_data_loss and len(offsets) and not (readable.start <= offsets.start and offsets.end <= readable.end):
            raise BadRequestError(f"the cut of {name} is not in the log any more: it has {readable.start} to {readable.end}",
                                  earliest=readable.start, latest=readable.end)
        wanted[name] = pruning.clip(offsets)
    days = offsets_by_day(wanted, located, options) if options.file_bytes else {name: [(0, offsets)] for name, offsets in wanted.items()}
    ranges = [of for name, parts in days.items() for day, offsets in parts
              for of in plan_ranges(located[name][0], name, located[name][1], offsets, options.file_bytes or options.range_bytes, day=day)]
    if options.max_records_per_partition is not None:
        ranges = cut_to(ranges, options.max_records_per_partition)
    ranges = split_to(ranges, options.min_partitions)
    return pack(ranges, options.file_bytes, least=options.min_partitions) if options.file_bytes else [(of,) for of in ranges]


def offsets_by_day(wanted: Mapping[TopicPartition, OffsetRange], located: Located,
                   options: ReadOptions) -> dict[TopicPartition, list[tuple[int, OffsetRange]]]:
    """Offsets cut at midnight UTC of the append time, each piece with its day since 1970; one snapshot per broker.

    A log with damage where the search passes is not cut: tasks are only larger then, and what is missing the read itself says.
    """
    found: dict[TopicPartition, list[tuple[int, OffsetRange]]] = {}
    for database in sorted({database for database, _ in located.values()}, key=str):
        with snapshot_cursor(database, limits_of(options)) as cursor:
            for name, offsets in wanted.items():
                place, position = located[name]
                if place == database:
                    try:
                        found[name] = list(days_of(cursor, position, offsets))
                    except LogFaultError:
                        found[name] = [(0, offsets)]
    return found


def locate(options: ReadOptions, pruning: Pruning = NO_PRUNING, look: Look | None = None) -> Located:
    """Where the log of each wanted partition is and how far it goes. Raises as :func:`plan_read`.

    Args:
        look: how databases are looked into; without it, each by a connection that is closed afterwards.
    """
    cluster = fetch_cluster(options.bootstrap, timeout_seconds=options.request_timeout_seconds)
    chosen = [info for info in _choose(options, cluster) if pruning.wants(TopicPartition(info.topic, info.partition))]
    return replica_positions(cluster, chosen, look or partial(snapshot_cursor, limits=limits_of(options)), options.read_from)


def edge_offsets(edge: Edge, located: Located, options: ReadOptions) -> Times:
    """For the partitions that a time bounds: the first offset at or after it, None where there is none."""
    times_ms = {name: edge.time_of(name) for name in located}
    return offsets_at({name: time_ms * 1000 for name, time_ms in times_ms.items() if time_ms is not None}, located, limits_of(options))


def offsets_at(times_us: ByPartition, located: Located, limits: Limits) -> Times:
    """The first offset that was appended at or after each partition's time, None where there is none; one snapshot per broker."""
    found: dict[TopicPartition, int | None] = {}
    for database in sorted({located[name][0] for name in times_us}, key=str):
        with snapshot_cursor(database, limits) as cursor:
            for name, time_us in times_us.items():
                place, position = located[name]
                if place == database:
                    found[name] = offset_at(cursor, position, time_us)
    return found


def _choose(options: ReadOptions, cluster: Cluster) -> list[PartitionInfo]:
    chosen = [info for info in cluster.partitions if options.wants(TopicPartition(info.topic, info.partition))]
    if options.cut is not None:
        chosen = [info for info in chosen if TopicPartition(info.topic, info.partition) in options.cut.partitions]
    there = {TopicPartition(info.topic, info.partition) for info in chosen}
    missing = [str(partition) for partition in options.assigned if partition not in there]
    missing += [topic for topic in options.topics if topic not in {partition.topic for partition in there}]
    if missing:
        raise BadRequestError(f"no such topic or partition: {', '.join(missing)}")
    return chosen


def _at_cut(cut: Cut, name: TopicPartition, position: Position) -> CutPartition:
    entry = cut.partitions[name]
    if entry.id != position.id:
        raise ConflictError(f"topic {name.topic} was made anew since the cut was taken: it had id {entry.id.topic_id}, now {position.id.topic_id}")
    return entry


def replica_to_read(info: PartitionInfo, read_from: str | int) -> int:
    """The broker whose copy is read: the leader's, a follower's where there is one (they share the partitions), or a named broker's.

    Raises:
        BadRequestError: the named broker holds no copy.
        UnavailableError: the partition has no leader now.
    """
    if isinstance(read_from, int):
        if read_from not in (*info.replicas, info.leader):
            raise BadRequestError(f"broker {read_from} holds no copy of {info.topic}/{info.partition}: brokers {list(info.replicas)} do")
        return read_from
    followers = [broker_id for broker_id in info.replicas if broker_id != info.leader]
    if read_from == FOLLOWER and followers:
        return followers[info.partition % len(followers)]
    if info.leader is None:
        raise UnavailableError(f"partition {info.topic}/{info.partition} has no leader now")
    return info.leader


def replica_positions(cluster: Cluster, partitions: Iterable[PartitionInfo], look: Look, read_from: str | int = LEADER) -> Located:
    """Where a copy of each partition has its log; one snapshot per broker. Raises as :func:`replica_to_read`, and UnavailableError."""
    by_broker: dict[int, list[PartitionInfo]] = {}
    for info in partitions:
        by_broker.setdefault(replica_to_read(info, read_from), []).append(info)
    found = {}
    for broker_id, infos in sorted(by_broker.items()):
        database = database_of(cluster, broker_id)
        with look(database) as cursor:
            positions = read_positions(cursor, (info.topic_id for info in infos))
        for info in infos:
            position = positions.get(PartitionId(info.topic_id, info.partition))
            if position is None:
                raise UnavailableError(f"broker {broker_id} does not hold {info.topic}/{info.partition} yet")
            found[TopicPartition(info.topic, info.partition)] = (database, position)
    return found


def database_of(cluster: Cluster, broker_id: int) -> DatabaseAddress:
    """Raises UnavailableError where the cluster does not say where a broker's database is."""
    database = cluster.brokers.get(broker_id)
    if database is None:
        raise UnavailableError(f"the cluster does not say where the database of broker {broker_id} is")
    return database


def take_cut(cluster: Cluster, partitions: Iterable[PartitionInfo], limits: Limits) -> Cut:
    """The committed end of these partitions now, as their leaders have it. Raises UnavailableError."""
    return take_cut_between(cluster, partitions, limits)[0]


def take_cut_between(cluster: Cluster, partitions: Iterable[PartitionInfo], limits: Limits, *, since_us: int | None = None,
                     until_us: int | None = None) -> tuple[Cut, Cut]:
    """A cut as :func:`take_cut` takes it, and what of it was appended from one time (included) to another (excluded), in microseconds since 1970.

    Raises:
        UnavailableError: a partition has no leader now, or a database cannot be reached.
        LogFaultError: an entry that must be there is missing.
    """
    located = replica_positions(cluster, partitions, partial(snapshot_cursor, limits=limits))
    starts, ends = (offsets_at(dict.fromkeys(located, time_us) if time_us is not None else {}, located, limits) for time_us in (since_us, until_us))
    cut = cut_of(cluster.cluster_id, (CutPartition(name, position.id, position.readable) for name, (_, position) in located.items()))
    return cut, narrowed(cut, starts, ends)
