"""``format("myqueue")``: the name, the columns and the readers."""

from __future__ import annotations

from pyspark.errors import PySparkValueError
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from .. import schemas
from .options import parse_options
from .reader import MyQueueReader, PruningReader
from .stream_reader import MyQueueStreamReader


class MyQueueDataSource(DataSource):
    """Batch and stream reads of topics, with the columns and option names of Spark's Kafka source."""

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


def _known(schema: StructType) -> StructType:
    known = {field.name: field.dataType for field in schemas.MESSAGES_WITH_HEADERS}
    wrong = [f"{field.name} {field.dataType.simpleString()}" for field in schema if known.get(field.name) != field.dataType]
    if wrong:
        raise PySparkValueError(f"the myqueue source has no column {', '.join(wrong)}")
    return schema
