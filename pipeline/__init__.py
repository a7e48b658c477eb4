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
    """Make ``spark.read.format("myqueue")`` known to a session, also with this package from a ``--py-files`` zip: it travels by value."""
    import os
    import sys

    from pyspark import cloudpickle

    from .source.data_source import MyQueueDataSource

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    origin = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if os.path.isfile(origin):  # a zip: the process that plans a stream looks into none of --py-files, only where the path leads
        environment = spark.sparkContext.environment
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (origin, environment.get("PYTHONPATH"))))
    spark.dataSource.register(MyQueueDataSource)
