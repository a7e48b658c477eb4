"""``format("myqueue")``: the name, the columns, the readers and the writers."""

from __future__ import annotations

from pyspark.errors import PySparkValueError
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from myqueue.errors import BadRequestError

from .. import schemas
from ..sink.options import WriteOptions, check_columns, parse_write_options
from ..sink.writers import MyQueueStreamWriter, MyQueueWriter
from .options import parse_options
from .reader import MyQueueReader, PruningReader
from .stream_reader import MyQueueStreamReader


class MyQueueDataSource(DataSource):
    """Batch and stream reads and writes of topics, with the columns and option names of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        return "myqueue"

    def schema(self) -> StructType:
        """Kafka's columns; ``headers`` too where ``includeHeaders`` is true."""
        wanted = str(self.options.get("includeHeaders", "false")).lower() == "true"  # the readers check the word
        return schemas.MESSAGES_WITH_HEADERS if wanted else schemas.MESSAGES

    def reader(self, schema: StructType) -> MyQueueReader:
        """A reader of all columns, or of those that the user's own schema names."""
        options = parse_options(self.options)
        return (PruningReader if options.push_filters else MyQueueReader)(options, _known(schema))

    def streamReader(self, schema: StructType) -> MyQueueStreamReader:
        """The same for ``readStream``."""
        return MyQueueStreamReader(parse_options(self.options, stream=True), _known(schema))

    def writer(self, schema: StructType, overwrite: bool) -> MyQueueWriter:
        """A writer of rows as messages. Logs are appended to, never overwritten."""
        if overwrite:
            raise BadRequestError('a log is only appended to: use .mode("append")')
        return MyQueueWriter(self._write_options(schema, stream=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> MyQueueStreamWriter:
        """The same for ``writeStream``, in the output mode append."""
        if overwrite:
            raise BadRequestError('a log is only appended to: use .outputMode("append")')
        return MyQueueStreamWriter(self._write_options(schema, stream=True))

    def _write_options(self, schema: StructType, *, stream: bool) -> WriteOptions:
        options = parse_write_options(self.options, stream=stream)
        check_columns(schema, options)
        return options


def _known(schema: StructType) -> StructType:
    known = {field.name: field.dataType for field in schemas.READABLE}
    wrong = [f"{field.name} {field.dataType.simpleString()}" for field in schema if known.get(field.name) != field.dataType]
    if wrong:
        raise PySparkValueError(f"the myqueue source has no column {', '.join(wrong)}")
    return schema
