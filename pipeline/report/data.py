"""Messages of a cut → Parquet data sets → the figures of a report. Only figures come to the driver: messages and keys stay with Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING

from ..schemas import LAG, REPORTED
from ..settings import PipelineSettings
from ..source.cut_reader import cut_reader
from ..source.cuts import Cut
from ..transforms.counts import collected, differences
from ..transforms.traffic import HOUR_US, partition_totals, top_keys, topic_totals, traffic_by_hour, traffic_by_period
from .figures import KeyCount, Period, Standing, TopicTraffic, Traffic, coloured, period_hours_for, topics_of
from .folder import KEYS_NAME, LAG_NAME, TRAFFIC_NAME
from .shown import KEY_BYTES_SHOWN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_messages(spark: SparkSession, settings: PipelineSettings, cut: Cut) -> DataFrame:
    """The messages of a cut, as far as they are there: whether all are, the counts say."""
    if not cut.messages():
        return spark.createDataFrame([], REPORTED)
    return cut_reader(spark, settings, cut, fail_on_data_loss=False).schema(REPORTED).load()


def write_data(spark: SparkSession, messages: DataFrame, standings: Sequence[Standing], top: int, folder: Path) -> None:
    """The three data sets, a sorted file each. The messages are read twice: for the traffic, and for the keys."""
    lag = spark.createDataFrame([astuple(one) for one in standings], LAG)
    for name, frame, order in ((TRAFFIC_NAME, traffic_by_hour(messages), ("topic", "partition", "hour")),
                               (KEYS_NAME, top_keys(messages, top), ("topic", "place")), (LAG_NAME, lag, ("kind", "name", "topic", "partition"))):
        frame.repartition(1).sortWithinPartitions(*order).write.parquet(str(folder / name))


def read_figures(spark: SparkSession, cut: Cut, folder: Path) -> Traffic:
    """What a page shows of the data sets in a folder, and how the messages counted in them differ from the cut's."""
    traffic = spark.read.parquet(str(folder / TRAFFIC_NAME)).cache()
    try:
        topics = topics_of(cut, {row["topic"]: TopicTraffic(partitions=0, **row.asDict()) for row in topic_totals(traffic).collect()})
        hours, periods = _periods(traffic, topics)
        return Traffic(topics, hours, periods, _keys(spark.read.parquet(str(folder / KEYS_NAME))),
                       tuple(differences(cut, collected(partition_totals(traffic)))))
    finally:
        traffic.unpersist()


def _periods(traffic: DataFrame, topics: Sequence[TopicTraffic]) -> tuple[int, tuple[Period, ...]]:
    """Periods so long that all fit into a chart."""
    times = [time for topic in topics for time in (topic.first_us, topic.last_us) if time is not None]
    if not times:
        return 1, ()
    hours = period_hours_for(max(times) // HOUR_US - min(times) // HOUR_US + 1)
    rows = traffic_by_period(traffic, hours=hours, topics=coloured(topics)).orderBy("period", "topic").collect()
    return hours, tuple(Period(row["period"], row["topic"], row["messages"], row["bytes"]) for row in rows)


def _keys(keys: DataFrame) -> tuple[KeyCount, ...]:
    from pyspark.sql import functions as F

    rows = keys.orderBy("topic", "place").select(
        "topic", F.substring("key", 1, KEY_BYTES_SHOWN).alias("beginning"), F.length("key").alias("length"), "messages", "bytes").collect()
    return tuple(KeyCount(row["topic"], bytes(row["beginning"]), row["length"], row["messages"], row["bytes"]) for row in rows)
