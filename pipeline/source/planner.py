"""From options to ranges: asks the cluster and the brokers' databases once, and takes the cut."""

from __future__ import annotations

from collections.abc import Iterable

from myqueue.errors import BadRequestError, ConflictError, UnavailableError
from myqueue.protocol.types import PartitionId, PartitionInfo, TopicPartition

from ..cluster import Cluster, DatabaseAddress, fetch_cluster
from ..databases import Limits, snapshot_cursor
from .cuts import Cut, CutPartition, cut_of
from .options import ReadOptions
from .positions import Position, read_positions
from .ranges import ReadRange, plan_ranges, split_to


def limits_of(options: ReadOptions) -> Limits:
    return Limits(options.request_timeout_seconds, options.statement_timeout_seconds)


def plan_read(options: ReadOptions) -> list[ReadRange]:
    """The ranges of a read, in the order of topic, partition and offset.

    Raises:
        BadRequestError: a topic, partition or offset that was asked for is not there.
        ConflictError: the cut names a topic that was made anew since.
        UnavailableError: a partition has no leader now, or a database cannot be reached.
    """
    cluster = fetch_cluster(options.bootstrap, timeout_seconds=options.request_timeout_seconds)
    chosen = _choose(options, cluster)
    positions = leader_positions(cluster, chosen, limits_of(options))
    ranges: list[ReadRange] = []
    for name, (database, position) in sorted(positions.items()):
        readable = position.readable
        offsets = options.offsets(name, _at_cut(options.cut, name, position).offsets if options.cut else readable)
        if options.fail_on_data_loss and len(offsets) and not (readable.start <= offsets.start and offsets.end <= readable.end):
            raise BadRequestError(f"the cut of {name} is not in the log any more: it has {readable.start} to {readable.end}",
                                  earliest=readable.start, latest=readable.end)
        ranges += plan_ranges(database, name, position, offsets, options.range_bytes)
    return split_to(ranges, options.min_partitions)


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


def leader_positions(cluster: Cluster, partitions: Iterable[PartitionInfo], limits: Limits) -> dict[TopicPartition, tuple[DatabaseAddress, Position]]:
    """Where the leader of each partition has its log; one connection per broker. Raises UnavailableError."""
    by_broker: dict[int, list[PartitionInfo]] = {}
    for info in partitions:
        if info.leader is None:
            raise UnavailableError(f"partition {info.topic}/{info.partition} has no leader now")
        by_broker.setdefault(info.leader, []).append(info)
    found = {}
    for broker_id, infos in sorted(by_broker.items()):
        database = database_of(cluster, broker_id)
        with snapshot_cursor(database, limits) as cursor:
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
    positions = leader_positions(cluster, partitions, limits)
    return cut_of(cluster.cluster_id, (CutPartition(name, position.id, position.readable) for name, (_, position) in positions.items()))
