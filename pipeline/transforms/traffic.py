"""What went through topics: messages and bytes by partition and hour, and the keys that occur most."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HOUR_US = 3_600_000_000


def traffic_by_hour(messages: DataFrame) -> DataFrame:
    """One row per topic, partition and hour (UTC) in which something was appended.

    Beside what was written, the columns say which offsets are counted: first_offset, last_offset and offset_sum, as in ``counts_by_partition``.
    """
    from pyspark.sql import functions as F

    at, key, value = F.unix_micros("appendTime"), F.coalesce(F.length("key"), F.lit(0)).cast("long"), F.length("value").cast("long")
    return messages.groupBy("topic", "partition", F.timestamp_micros(at - F.pmod(at, F.lit(HOUR_US))).alias("hour")).agg(
        F.count("*").alias("messages"), F.count_if(F.col("key").isNull()).alias("without_key"), F.sum(key).alias("key_bytes"),
        F.sum(value).alias("value_bytes"), F.max(key + value).alias("largest_bytes"), F.min("appendTime").alias("first_at"),
        F.max("appendTime").alias("last_at"), F.min("offset").alias("first_offset"), F.max("offset").alias("last_offset"),
        F.sum(F.col("offset").cast("decimal(20,0)")).alias("offset_sum"))


def partition_totals(traffic: DataFrame) -> DataFrame:
    """Of traffic by hour what ``counts_by_partition`` says of the messages themselves."""
    from pyspark.sql import functions as F

    return traffic.groupBy("topic", "partition").agg(
        F.sum("messages").alias("messages"), F.min("first_offset").alias("first_offset"), F.max("last_offset").alias("last_offset"),
        F.sum("offset_sum").alias("offset_sum"))


def topic_totals(traffic: DataFrame) -> DataFrame:
    """One row per topic with messages; times in microseconds since 1970."""
    from pyspark.sql import functions as F

    return traffic.groupBy("topic").agg(
        *(F.sum(name).alias(name) for name in ("messages", "without_key", "key_bytes", "value_bytes")), F.max("largest_bytes").alias("largest_bytes"),
        F.min(F.unix_micros("first_at")).alias("first_us"), F.max(F.unix_micros("last_at")).alias("last_us"))


def traffic_by_period(traffic: DataFrame, *, hours: int, topics: Collection[str]) -> DataFrame:
    """Messages and bytes of each of these topics, and of all others together (their topic is NULL), in periods of so many hours since 1970."""
    from pyspark.sql import functions as F

    topic = F.when(F.col("topic").isin(list(topics)), F.col("topic"))
    period = F.floor(F.unix_micros("hour") / F.lit(HOUR_US) / F.lit(hours))
    return traffic.groupBy(topic.alias("topic"), period.alias("period")).agg(
        F.sum("messages").alias("messages"), F.sum(F.col("key_bytes") + F.col("value_bytes")).alias("bytes"))


def top_keys(messages: DataFrame, limit: int) -> DataFrame:
    """The keys of each topic that occur most, ``limit`` of them at most, with their place from 1. Of keys that occur equally often the one with
    more bytes in its messages comes first, then the smaller one."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    size = (F.length("key") + F.length("value")).cast("long")
    keys = messages.where(F.col("key").isNotNull()).groupBy("topic", "key").agg(F.count("*").alias("messages"), F.sum(size).alias("bytes"))
    order = Window.partitionBy("topic").orderBy(F.desc("messages"), F.desc("bytes"), "key")
    return keys.withColumn("place", F.row_number().over(order)).where(F.col("place") <= limit).select("topic", "place", "key", "messages", "bytes")
