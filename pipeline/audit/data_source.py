"""The audit's plan as a Spark data source: a partition is a task, a row the facts of one stretch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from .. import schemas
from ..databases import Limits
from .log_checks import Damage, StretchFacts, check_task
from .stretches import Stretch, tasks_from_json, tasks_to_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "myqueue-audit"


class AuditTask(InputPartition):
    """The stretches that one task checks, one after the other."""

    def __init__(self, stretches: list[Stretch]) -> None:
        super().__init__(stretches)


class AuditReader(DataSourceReader):
    """Gives each task its stretches and answers their facts."""

    def __init__(self, tasks: list[list[Stretch]], limits: Limits) -> None:
        self._tasks = tasks
        self._limits = limits

    def partitions(self) -> Sequence[AuditTask]:
        return [AuditTask(task) for task in self._tasks]

    def read(self, partition: InputPartition | None) -> Iterator[tuple]:
        stretches = [] if partition is None or partition.value is None else partition.value
        for fact in check_task(stretches, self._limits):
            damage = [(d.check, d.lsn, d.start_offset, d.end_offset, d.detail) for d in fact.damage]
            yield (fact.broker_id, fact.topic, fact.partition, fact.from_lsn, fact.to_lsn, fact.entries, fact.records,
                   fact.committed_records, damage, fact.damage_count, fact.error, fact.is_dropped)


class AuditDataSource(DataSource):
    """Options: ``tasks`` (stretches.tasks_to_json), ``connectSeconds``, ``statementSeconds``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return schemas.STRETCH_FACTS

    def reader(self, schema: StructType) -> AuditReader:
        return AuditReader(tasks_from_json(self.options["tasks"]),
                           Limits(float(self.options["connectSeconds"]), float(self.options["statementSeconds"])))


def execute_in_spark(spark: SparkSession, tasks: Sequence[Sequence[Stretch]], limits: Limits) -> list[StretchFacts]:
    """Run the plan's tasks on Spark's executors. Only facts come back, never messages."""
    spark.dataSource.register(AuditDataSource)
    rows = (spark.read.format(FORMAT).option("tasks", tasks_to_json(tasks)).option("connectSeconds", str(limits.connect_seconds))
            .option("statementSeconds", str(limits.statement_seconds)).load().collect())
    names = [f.name for f in dataclasses.fields(StretchFacts)]
    return [StretchFacts(**{**{name: row[name] for name in names}, "damage": tuple(Damage(*damage) for damage in row["damage"])}) for row in rows]
