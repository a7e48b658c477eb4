"""``df.write`` and ``df.writeStream.format("myqueue")`` into a cluster behind real HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from myqueue.protocol.types import PartitionId, Record
from myqueue.testing import InMemoryTransport
from tests.pipeline.conftest import FilledCluster
from tests.support.served_memory import served

pytestmark = pytest.mark.timeout(240)  # the first test of the run also starts Spark, on a machine that may be busy


@pytest.fixture
def sink() -> Iterator[tuple[InMemoryTransport, str]]:
    """A cluster to write into, with a topic of two partitions, and its address."""
    memory = InMemoryTransport()
    memory.create_topic("to", 2)
    with served(memory) as address:
        yield memory, address


def test_a_named_write_that_is_repeated_adds_nothing(spark: SparkSession, sink: tuple[InMemoryTransport, str]) -> None:
    """Keys, headers and partitions arrive as they are; without a name the rows are written again."""
    memory, address = sink
    frame = spark.sql("SELECT CAST(id AS string) AS value, CASE WHEN id < 5 THEN 'k' END AS key, CASE WHEN id = 9 THEN 1 ELSE 0 END AS partition, "
                      "array(named_struct('key', 'h', 'value', CAST('x' AS binary))) AS headers FROM range(0, 10, 1, 2)")
    writer = frame.write.format("myqueue").mode("append").option("myqueue.bootstrap.servers", address).option("topic", "to")
    for _ in range(2):
        writer.option("writeId", "nightly").option("includeHeaders", "true").save()
    found = {(message.partition, message.key, message.value, message.headers) for partition in (0, 1) for message in memory.messages("to", partition)}
    assert {(int(number == 9), b"k" if number < 5 else None, b"%d" % number, (("h", b"x"),)) for number in range(10)} == found
    assert 10 == sum(len(memory.messages("to", partition)) for partition in (0, 1))
    frame.write.format("myqueue").mode("append").option("myqueue.bootstrap.servers", address).option("topic", "to").save()
    assert 20 == sum(len(memory.messages("to", partition)) for partition in (0, 1))
    with pytest.raises(PySparkException, match="a log is only appended to"):
        writer.mode("overwrite").save()


def test_a_micro_batch_that_is_run_again_is_stored_once(spark: SparkSession, cluster: FilledCluster, sink: tuple[InMemoryTransport, str],
                                                        tmp_path: Path) -> None:
    """Topic to topic: the query ends after the rows were stored and before Spark noted it, and is started again; then it goes on."""
    memory, address = sink
    cluster.create_topic("from", topic_id=1)
    cluster.fillers[0].append(PartitionId(1, 0), [Record(b"%d" % number) for number in range(3000)])

    def run() -> list[bytes]:
        query = (spark.readStream.format("myqueue").option("myqueue.bootstrap.servers", cluster.server.address).option("subscribe", "from")
                 .option("startingOffsets", "earliest").option("minPartitions", "2").load().select("value").writeStream.format("myqueue")
                 .option("myqueue.bootstrap.servers", address).option("topic", "to").option("checkpointLocation", str(tmp_path / "checkpoint"))
                 .trigger(availableNow=True).start())
        try:
            assert query.awaitTermination(120), query.status
        finally:
            query.stop()
        return sorted((message.value for partition in (0, 1) for message in memory.messages("to", partition)), key=int)

    assert [b"%d" % number for number in range(3000)] == run()
    for note in (tmp_path / "checkpoint" / "commits").glob("*0*"):
        note.unlink()
    cluster.fillers[0].roll(1)
    cluster.fillers[0].append(PartitionId(1, 0), [Record(b"%d" % number) for number in range(3000, 3100)])
    assert [b"%d" % number for number in range(3100)] == run()
