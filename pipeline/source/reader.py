"""The batch reader: ``partitions`` plans once in the driver, ``read`` runs in the tasks and keeps nothing between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from myqueue.errors import LogFaultError

from ..databases import limits_of
from . import statements
from .filters import NO_PRUNING, pruning_of
from .options import ReadOptions
from .planner import plan_read
from .ranges import ReadRange, windows

if TYPE_CHECKING:
    import pyarrow as pa

    from ..databases import ArrowConnection


class RangePartition(InputPartition):
    """A Spark task: ranges, one after the other."""

    def __init__(self, ranges: tuple[ReadRange, ...]) -> None:
        super().__init__(ranges)


class MyQueueReader(DataSourceReader):
    """Reads messages up to the committed end, or to a cut."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._pruning = NO_PRUNING

    def partitions(self) -> Sequence[RangePartition]:
        """The ranges to read, by task. Called once, when the read is planned."""
        return [RangePartition(ranges) for ranges in plan_read(self._options, self._pruning)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The messages of one task. Raises LogFaultError where some are missing and ``failOnDataLoss`` is on."""
        if partition is None or partition.value is None:  # what Spark makes of an empty list of partitions
            return
        for of in partition.value:
            yield from read_range(of, self._options, self._schema)


class PruningReader(MyQueueReader):
    """One that takes a query's conditions in. A class of its own, since Spark fails every read of a reader that can, while its setting is off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Leave out what cannot satisfy them. All go back to Spark, which applies them to the rows that are read."""
        self._pruning = pruning_of(filters)
        return filters


def read_range(of: ReadRange, options: ReadOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """One range in short transactions, in batches bounded by bytes."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from ..databases import ArrowConnection

    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    connection = ArrowConnection(of.database, limits_of(options))
    found = 0
    try:
        stretches = windows(of.start, of.end)
        stretch = next(stretches, None)
        while stretch is not None:
            had_bytes = 0
            for batch in _read_stretch(connection, of, stretch.start, stretch.end, options, arrow_schema):
                found += batch.num_rows
                had_bytes += batch.nbytes
                yield batch
            try:
                stretch = stretches.send(had_bytes)
            except StopIteration:
                stretch = None
    finally:
        connection.close()
    if options.fail_on_data_loss and found != of.end - of.start:
        raise LogFaultError(f"{of.name}: of the offsets {of.start} to {of.end} only {found} are there; run an audit, "
                            "or set failOnDataLoss to false to read on without them")


def _read_stretch(connection: ArrowConnection, of: ReadRange, start: int, end: int, options: ReadOptions,
                  arrow_schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    from .decode import explode

    statement = statements.blocks(segment=of.segment_id, topic_id=of.topic_id, partition=of.name.partition, start=start, end=end,
                                  headers="headers" in arrow_schema.names)
    for batch in connection.batches(statement, batch_bytes=options.batch_bytes):
        messages = explode(batch, topic=of.name.topic, partition=of.name.partition, start=start, end=end, schema=arrow_schema)
        if messages.num_rows:
            yield messages
