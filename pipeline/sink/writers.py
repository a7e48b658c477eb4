"""What Spark calls in its tasks: the batch writer and the stream writer."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.taskcontext import TaskContext

from myqueue.errors import InternalError

from ..cluster import connected
from .options import WriteOptions
from .sender import Writer, Written, write_batches

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"  # local properties that Spark gives each task of a micro-batch


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):
    """A task's answer to the driver."""

    written: Written


class MyQueueWriter(DataSourceArrowWriter):
    """Batch writes. With ``writeId`` a repeated write adds nothing; without it a task that Spark runs again writes again."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Store one task's rows."""
        name = f"write {self._options.write_id}" if self._options.write_id is not None else f"once {uuid.uuid4()}"
        return _write(iterator, Writer(name, 0, _context().partitionId()), self._options)


class MyQueueStreamWriter(DataSourceStreamArrowWriter):
    """Stream writes: exactly once per micro-batch, since a micro-batch that is run again writes under the same names and numbers."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Store one task's rows of a micro-batch."""
        context = _context()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise InternalError(f"Spark does not tell its tasks the micro-batch ({QUERY_ID}, {BATCH_ID})")
        return _write(iterator, Writer(f"query {query}", int(batch), context.partitionId()), self._options)


def _write(batches: Iterator[pa.RecordBatch], writer: Writer, options: WriteOptions) -> TaskWritten:
    with connected(options.bootstrap) as connection:
        return TaskWritten(write_batches(batches, writer, options, connection))


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise InternalError("a writer runs in a Spark task only")
    return context
