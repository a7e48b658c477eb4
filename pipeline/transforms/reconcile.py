"""Messages by ten minutes of their append time, and the stretches of offsets that they make."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PERIOD_US = 600_000_000


def by_period(messages: DataFrame) -> DataFrame:
    """One row per topic, partition and period (its beginning, in microseconds since 1970) in which something was appended: messages, first_offset,
    last_offset and offset_sum, as in ``counts_by_partition``."""
    from pyspark.sql import functions as F

    return _with_period(messages).groupBy("topic", "partition", "period").agg(
        F.count("*").alias("messages"), F.min("offset").alias("first_offset"), F.max("offset").alias("last_offset"),
        F.sum(F.col("offset").cast("decimal(20,0)")).alias("offset_sum"))


def stretches(messages: DataFrame) -> DataFrame:
    """The offsets that are there, exactly: a row per topic, partition, period and run of offsets (start included, end excluded) without a gap,
    each of them there so many ``times``. Offsets are sorted within a period, and nothing wider."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    place = ("topic", "partition", "period", "times")
    counted = _with_period(messages).groupBy("topic", "partition", "period", "offset").agg(F.count("*").alias("times"))
    in_order = F.row_number().over(Window.partitionBy(*place).orderBy("offset"))  # a run's offsets and their numbers rise together
    return counted.withColumn("run", F.col("offset") - in_order).groupBy(*place, "run").agg(
        F.min("offset").alias("start"), (F.max("offset") + 1).alias("end")).drop("run")


def _with_period(messages: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    at = F.unix_micros("appendTime")
    return messages.withColumn("period", at - F.pmod(at, F.lit(PERIOD_US)))
