"""How a job reads a cut: the source's options as the job's settings have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..settings import PipelineSettings
from .cuts import Cut

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession


def cut_reader(spark: SparkSession, settings: PipelineSettings, cut: Cut, *, fail_on_data_loss: bool) -> DataFrameReader:
    """A reader of exactly the messages of a cut, which must hold a topic at least."""
    options = {"myqueue.bootstrap.servers": settings.bootstrap, "subscribe": ",".join(cut.messages_by_topic()), "cut": cut.to_json(),
               "minPartitions": str(settings.min_partitions), "rangeBytes": str(settings.range_bytes),
               "failOnDataLoss": str(fail_on_data_loss).lower(), "requestTimeoutSeconds": str(round(settings.request_timeout_seconds) or 1),
               "statementTimeoutSeconds": str(round(settings.statement_timeout_seconds))}
    return spark.read.format("myqueue").options(**options)
