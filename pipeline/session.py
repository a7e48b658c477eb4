"""The Spark session of a job: what must be set for the source to work, and quiet on a clean run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Settings that must be there before the JVM starts (memory, JVM options, master) are given by scripts/spark-submit.
SESSION_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",    # the default, INT96, is refused or misread by other readers
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.maxConcurrentOutputFileWriters": "8",                # an export's task has one topic and date: no sort before the write
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",  # a topic called 2024 stays text
    "spark.sql.python.filterPushdown.enabled": "true",              # for readers of pushFilters; the others are not touched
    "spark.speculation": "false",
}


def build_session(name: str) -> SparkSession:
    """The session of this process, made on first use, with ``format("myqueue")`` registered."""
    from pyspark.sql import SparkSession

    from . import register

    builder = SparkSession.builder.appName(name)
    for setting, value in SESSION_SETTINGS.items():
        builder = builder.config(setting, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark
