"""What readers see of a log while others write to it: no hole, nothing passed over, and never more at a time than they can hold."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import requests

from broker.service import BrokerService
from myqueue.errors import RefusedError
from myqueue.protocol.batch import BATCH_TYPE, ENTRIES_TYPE, messages_of, pack
from myqueue.protocol.types import PartitionId, Record
from myqueue.supervisor.process import descendants
from tests.integration.broker.conftest import running_service
from tests.support.broker_process import BrokerProcess, broker_process
from tests.support.factories import blocks
from tests.support.long import LONG
from tests.support.manager_stub import ManagerStub
from tests.support.waiting import wait_until

P0 = PartitionId(1, 0)
MIB = 1 << 20


class Reader:
    """Reads a partition from its beginning all the time, each time from where it ended."""

    def __init__(self, service: BrokerService) -> None:
        self._service = service
        self.seen: list[tuple[int, bytes]] = []

    def read(self) -> int:
        offset = len(self.seen)
        _, part = self._service.reads.read(P0, offset, bytes_max=MIB, records_max=10_000)
        self.seen += [(message.offset, message.value) for message in messages_of(part.body, topic="t", partition=0, from_offset=offset)]
        return len(self.seen)


@contextmanager
def reading(reader: Reader) -> Iterator[Reader]:
    ended = threading.Event()

    def read_on() -> None:
        while not ended.is_set():
            reader.read()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(read_on)
        try:
            yield reader
        finally:
            ended.set()
            done.result(20)


@pytest.mark.timeout(300 if LONG else 60)
def test_a_slow_transaction_and_one_that_is_rolled_back_leave_no_hole(broker_database: str) -> None:
    """Two processes' writers on one partition, one of them held before its commits and failing in every third: offsets that are visible are
    contiguous at any moment, and each reader gets everything that was acknowledged, in order, and nothing that was not.
    """
    rounds, held_seconds = (30, 2.0) if LONG else (6, 0.3)
    commits = 0
    in_commit = threading.Event()

    def hold(event: str) -> None:
        nonlocal commits
        if event != "before_commit" or not slowly.is_set():
            return
        commits += 1
        in_commit.set()
        time.sleep(held_seconds)  # what is slow is the transaction
        if commits % 3 == 0:
            raise RefusedError("rolled back on purpose")

    slowly = threading.Event()
    acknowledged: dict[int, bytes] = {}
    with running_service(broker_database, on_event=hold, remembers=False) as slow, running_service(broker_database, remembers=False) as quick:
        slowly.set()

        def send(service: BrokerService, producer_id: int, number: int) -> bool:
            value = b"%d-%d" % (producer_id, number)
            try:
                acknowledged[service.append(P0, blocks(value), None, size_bytes=10).base_offset] = value
            except RefusedError:
                return False
            return True

        with reading(Reader(quick)) as first, reading(Reader(slow)) as second, ThreadPoolExecutor(1) as pool:
            refused = 0
            for number in range(rounds):
                in_commit.clear()
                behind = pool.submit(send, slow, 1, number)
                assert in_commit.wait(10)
                for turn in range(3):  # the first waits for the slow one
                    assert send(quick, 2, number * 3 + turn)
                refused += not behind.result(20)
            end = len(acknowledged)
            for reader in (first, second):
                wait_until(lambda reader=reader: len(reader.seen) == end, what="everything to be read")
        slowly.clear()
    assert rounds // 3 == refused
    assert [(offset, acknowledged[offset]) for offset in range(end)] == first.seen == second.seen
    assert rounds * 4 - refused == end


def test_a_batch_with_one_bad_record_and_the_corrected_one_under_the_same_sequence(broker: BrokerProcess) -> None:
    """Nothing of the first is stored, and its sequence is not used up; of the second each record is there once, however often it comes."""
    broker.appoint("batches", topic_id=900)
    path = "/v1/topics/batches/partitions/0/records"
    headers = {"Producer-Id": "9", "Producer-Epoch": "0", "Producer-Seq": "0"}
    good = [{"value": str(number)} for number in range(100)]
    for spoilt in ({"value": 50}, {"value": "50", "timestamp": -1}, {"value_base64": "*"}, {}, {"value": "50", "more": 1}):
        error = broker.call("POST", path, {"records": [*good[:50], spoilt, *good[51:]]}, headers=headers, status=400)["error"]
        assert "not_done" == error["outcome"]
        assert [] == broker.call("GET", path)["records"]
    answers = [broker.call("POST", path, {"records": good}, headers=headers) for _ in range(3)]
    assert [(0, 100, False), (0, 100, True), (0, 100, True)] == [
        (answer["base_offset"], answer["record_count"], answer["duplicate"]) for answer in answers]
    assert [str(number) for number in range(100)] == [record["value"] for record in broker.call("GET", path)["records"]]


def resident_bytes(pid: int) -> int:
    """The largest memory that a process and those below it have held."""
    total = 0
    for one in (pid, *descendants(pid)):
        with open(f"/proc/{one}/status") as file:
            total += next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) << 10
    return total


@pytest.mark.timeout(600 if LONG else 60)
def test_a_read_without_bounds_of_a_large_backlog_is_bounded(postgres, managers: ManagerStub) -> None:
    """The answer has the size that a read has by default, and what it takes to make it does not grow with the backlog; nor with what is asked."""
    partitions, each = (30, 10) if LONG else (3, 8)
    with postgres.database("broker") as url, broker_process(url, managers.url) as broker:
        broker.appoint("backlog", partitions=partitions)
        for partition in range(partitions):
            for _ in range(each):
                batch = pack([Record(b"x" * 10_000) for _ in range(MIB // 10_000)])
                path = f"/v1/topics/backlog/partitions/{partition}/records"
                broker.call("POST", path, batch, headers={"Content-Type": BATCH_TYPE})
        produce = broker.url + "/v1/topics/quick/partitions/0/records"
        broker.appoint("quick", topic_id=2)
        before, quiet = resident_bytes(broker.process.pid), _slowest(produce)
        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(_read, broker, partition % partitions, query) for partition, query in enumerate(
                ["", "", "?max_bytes=999999999999", "?max_records=999999999"] * (8 if LONG else 2))]
            loaded = _slowest(produce)
            for one in asked:
                size, count = one.result(60)
                assert 1 <= count and size <= 12 * MIB, (size, count)
            whole, _ = asked[0].result()
            assert whole <= 2 * MIB
        assert resident_bytes(broker.process.pid) - before < 100 * MIB
        if LONG:
            assert loaded < max(1.0, 2 * quiet), (quiet, loaded)  # client and broker share the machine


def _read(broker: BrokerProcess, partition: int, query: str) -> tuple[int, int]:
    answer = requests.get(f"{broker.url}/v1/topics/backlog/partitions/{partition}/records{query}", timeout=60,
                          headers={"Accept": ENTRIES_TYPE} if partition % 2 else {})
    assert answer.status_code == 200, answer.text
    count = sum(1 for _ in messages_of(answer.content, topic="t", partition=0)) if partition % 2 else len(answer.json()["records"])
    return len(answer.content), count


def _slowest(url: str) -> float:
    """The 99th percentile of 100 small produces, in seconds."""
    times = []
    with requests.Session() as http:
        for _ in range(100):
            began = time.perf_counter()
            assert http.post(url, json={"value": "x"}, timeout=20).status_code == 200
            times.append(time.perf_counter() - began)
    return sorted(times)[98]
