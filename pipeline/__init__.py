"""Spark over the logs: a data source, an audit and an export. See DESIGN.md.

>>> from pipeline import register
>>> register(spark)
>>> spark.read.format("myqueue").option("myqueue.bootstrap.servers", "127.0.0.1:9092").option("subscribe", "T-1").load()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("myqueue")`` known to a session. Works from a ``--py-files`` zip too: the package travels by value."""
    import sys

    from pyspark import cloudpickle

    from .source.data_source import MyQueueDataSource

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark.dataSource.register(MyQueueDataSource)
