"""``format("myqueue")``: the name, the columns and the reader."""

from __future__ import annotations

from pyspark.errors import PySparkValueError
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from .. import schemas
from .options import parse_options
from .reader import MyQueueReader


class MyQueueDataSource(DataSource):
    """Batch reads of topics, with the columns and option names of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        return "myqueue"

    def schema(self) -> StructType:
        """Kafka's columns; ``headers`` too where ``includeHeaders`` is true."""
        return schemas.MESSAGES_WITH_HEADERS if parse_options(self.options).include_headers else schemas.MESSAGES

    def reader(self, schema: StructType) -> MyQueueReader:
        """A reader of all columns, or of those that the user's own schema names."""
        known = {field.name: field.dataType for field in schemas.MESSAGES_WITH_HEADERS}
        wrong = [f"{field.name} {field.dataType.simpleString()}" for field in schema if known.get(field.name) != field.dataType]
        if wrong:
            raise PySparkValueError(f"the myqueue source has no column {', '.join(wrong)}")
        return MyQueueReader(parse_options(self.options), schema)
