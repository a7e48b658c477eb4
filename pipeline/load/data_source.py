"""A wave of a load as a Spark data source: a partition is a split, a row says what became of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StructField, StructType

from ..sink.options import WriteOptions
from .fields import Fields
from .run import Loaded, LoadPlan, load_split
from .splits import Split

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "myqueue-load"
LOADED = StructType([StructField("number", LongType()), StructField("messages", LongType()), StructField("repeated", LongType())])


class SplitTask(InputPartition):
    """The split that one task loads."""

    def __init__(self, split: Split) -> None:
        super().__init__(split)


class LoadReader(DataSourceReader):
    """Gives each task its split and answers what became of it."""

    def __init__(self, plan: LoadPlan) -> None:
        self._plan = plan

    def partitions(self) -> Sequence[SplitTask]:
        return [SplitTask(split) for split in self._plan.splits]

    def read(self, partition: InputPartition | None) -> Iterator[tuple]:
        if partition is not None and partition.value is not None:
            loaded = load_split(self._plan, partition.value)
            yield loaded.number, loaded.messages, loaded.repeated


class LoadDataSource(DataSource):
    """Options: ``plan``, the plan of this wave."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return LOADED

    def reader(self, schema: StructType) -> LoadReader:
        return LoadReader(_from_json(self.options["plan"]))


def _to_json(plan: LoadPlan, splits: Sequence[Split]) -> str:
    return json.dumps({"id": plan.id, "splits": [asdict(split) for split in splits], "options": asdict(plan.options),
                       "fields": asdict(plan.fields)})


def _from_json(text: str) -> LoadPlan:
    body = json.loads(text)
    return LoadPlan(body["id"], tuple(Split(**split) for split in body["splits"]), WriteOptions(**body["options"]), Fields(**body["fields"]))


def execute_in_spark(spark: SparkSession, plan: LoadPlan, splits: Sequence[Split]) -> list[Loaded]:
    """A task for each of these splits, on Spark's executors: the files must be there under the same names."""
    spark.dataSource.register(LoadDataSource)
    rows = spark.read.format(FORMAT).option("plan", _to_json(plan, splits)).load().collect()
    return [Loaded(row["number"], row["messages"], row["repeated"]) for row in rows]
