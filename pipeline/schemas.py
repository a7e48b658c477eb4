"""The columns at each border: what the source gives, and what the audit's tasks answer."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

# Kafka's columns, names and types, so that a job can swap the format's name.
MESSAGES = StructType([
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),      # the client's time where it gave one, else the broker's append time
    StructField("timestampType", IntegerType()),    # 0: the client's, 1: the broker's
])
MESSAGES_WITH_HEADERS = StructType([*MESSAGES.fields, StructField("headers", HEADERS)])
READABLE = StructType([*MESSAGES_WITH_HEADERS.fields, StructField("appendTime", TimestampType())])  # the last one only where a schema names it

# What a report reads of the messages, and what it says of who reads them.
REPORTED = StructType([field for field in READABLE if field.name in ("key", "value", "topic", "partition", "offset", "appendTime")])
LAG = StructType([
    StructField("kind", StringType()),              # group or consumer
    StructField("name", StringType()),              # the group's name, the consumer's id
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),              # where it goes on; null where it has committed nothing
    StructField("end_offset", LongType()),          # of the cut
    StructField("lag", LongType()),
])

# What a reconciliation reads of the messages, and what it says of a partition's ten minutes; null: it was not asked for, or nothing is stored.
PLACED = StructType([field for field in READABLE if field.name in ("topic", "partition", "offset", "appendTime")])
OFFSET_SUM = DecimalType(38, 0)
PERIODS = StructType([
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("period", TimestampType()),         # its beginning
    StructField("stored", LongType()),
    StructField("first_offset", LongType()),
    StructField("last_offset", LongType()),
    StructField("stored_offset_sum", OFFSET_SUM),
    StructField("acknowledged", LongType()),
    StructField("acknowledged_offset_sum", OFFSET_SUM),
    StructField("consumed", MapType(StringType(), LongType())),  # by group
    StructField("exported", LongType()),
    StructField("exported_offset_sum", OFFSET_SUM),
])

DAMAGE = StructType([
    StructField("check", StringType()),
    StructField("lsn", LongType()),
    StructField("start_offset", LongType()),
    StructField("end_offset", LongType()),
    StructField("detail", StringType()),
])

# One row per stretch of a log that an audit task checked (or could not: ``error``).
STRETCH_FACTS = StructType([
    StructField("broker_id", LongType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("from_lsn", LongType()),
    StructField("to_lsn", LongType()),
    StructField("entries", LongType()),
    StructField("records", LongType()),
    StructField("committed_records", LongType()),
    StructField("damage", ArrayType(DAMAGE)),
    StructField("damage_count", LongType()),
    StructField("error", StringType()),
    StructField("is_dropped", BooleanType()),
])

# One row per audit, with what it found in lists.
AUDITS = StructType([
    StructField("at", TimestampType()),
    StructField("cluster_id", StringType()),
    StructField("result", StringType()),
    StructField("metadata_version", LongType()),
    StructField("seconds", DoubleType()),
    StructField("replicas", LongType()),
    StructField("managers", LongType()),
    StructField("messages", LongType()),
    StructField("topics", ArrayType(StructType([
        StructField("topic", StringType()),
        StructField("partitions", LongType()),
        StructField("messages", LongType()),
        StructField("entries", LongType()),
    ]))),
    StructField("findings", ArrayType(StructType([
        StructField("id", StringType()),
        StructField("check", StringType()),
        StructField("place", StringType()),
    ]))),
    StructField("skipped", ArrayType(StructType([
        StructField("node", StringType()),
        StructField("what", StringType()),
        StructField("why", StringType()),
    ]))),
])
