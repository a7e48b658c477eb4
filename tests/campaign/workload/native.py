"""The native face by plain HTTP: batches with a sequence, repeated until they are answered, and reads by offset."""

from __future__ import annotations

from myqueue.protocol import routes
from tests.campaign.history import OK, UNKNOWN, Read, Sent

from .client import FILLER, HttpClient, Reader, Setting

BATCH = 5
PAUSE_SECONDS = 0.1
REPEAT_SECONDS = 120.0
LAST_SECONDS = 30.0  # for the batch that is under way at the end


class NativeProducer(HttpClient):
    """One batch at a time to one partition; a batch without an answer is sent again with the same sequence."""

    def __init__(self, name: str, setting: Setting, topic: str, partition: int) -> None:
        super().__init__(name, setting)
        self._topic, self._partition, self._number = topic, partition, 0
        self._path = routes.RECORDS.format(topic=topic, partition=partition)
        self._register()

    def work(self) -> float:
        numbers = range(self._number, self._number + BATCH)
        self._number += BATCH
        began = self.now()
        body = {"records": [{"value": f"{self.name}:{number}|{FILLER}"} for number in numbers]}
        headers = {routes.PRODUCER_ID: str(self._producer_id), routes.PRODUCER_EPOCH: "0", routes.PRODUCER_SEQ: str(self._seq)}
        offset, outcome = None, UNKNOWN
        while not self._worker.stopping.is_set() or self.now() - began < LAST_SECONDS:
            answer = self.call("POST", self._path, json=body, headers=headers)
            if answer.outcome == OK:
                offset, outcome = answer.body["base_offset"], OK
                break
            if answer.status not in (0, 429, 503) or self.now() - began > REPEAT_SECONDS:
                break  # refused for good, which is an oddity already
            self._worker.stopping.wait(PAUSE_SECONDS)
        for place, number in enumerate(numbers):
            at = None if offset is None else offset + place
            self.history.sent.append(Sent(self.name, number, self._topic, self._partition, at, outcome, began, self.now()))
        self._seq += 1
        if outcome != OK and not self._worker.stopping.is_set():
            self._register()  # its sequence has a hole now
        return 0.02

    def _register(self) -> None:
        answer = self.insist("POST", routes.PRODUCERS, json={"topics": [self._topic]})
        self._producer_id, self._seq = answer["producers"][self._topic]["producer_id"], 0


class NativeReader(HttpClient, Reader):
    """Reads a partition by offset from its beginning, with long polls."""

    def __init__(self, name: str, setting: Setting, topic: str, partition: int) -> None:
        super().__init__(name, setting)
        self._topic, self._partition, self._next = topic, partition, 0
        self._path = routes.RECORDS.format(topic=topic, partition=partition)

    def work(self) -> float:
        answer = self.call("GET", self._path, params={"offset": self._next, "wait_seconds": 1, "max_records": 500})
        if answer.outcome != OK:
            return PAUSE_SECONDS
        for record in answer.body["records"]:
            value = record["value"].partition("|")[0]
            self.history.read.append(Read(self.name, 0, self._topic, self._partition, record["offset"], value, self.now()))
            self._next = record["offset"] + 1
            self.progress += 1
        return 0.0

    def is_at_end(self, ends: dict[tuple[str, int], int], since: float) -> bool:
        return self._next >= ends[self._topic, self._partition]
