"""The native face by plain HTTP: batches with a sequence, repeated until they are answered, reads by offset, and trims."""

from __future__ import annotations

import random
from collections.abc import Sequence

from myqueue.protocol import routes
from tests.campaign.history import OK, UNKNOWN, Read, Sent, Trimmed

from .client import FILLER, HttpClient, Reader, Setting

BATCH = 5
PAUSE_SECONDS = 0.1
REPEAT_SECONDS = 120.0
LAST_SECONDS = 30.0  # for the batch that is under way at the end
TRIM_SECONDS = 1.0
KEPT_MAX = 40  # messages that a trim leaves of those that were read


class NativeProducer(HttpClient):
    """One batch at a time to one partition; a batch without an answer is sent again with the same sequence."""

    def __init__(self, name: str, setting: Setting, topic: str, partition: int, *, filler: str = FILLER) -> None:
        super().__init__(name, setting)
        self._topic, self._partition, self._number, self._filler = topic, partition, 0, filler
        self._path = routes.RECORDS.format(topic=topic, partition=partition)
        self._register()

    def work(self) -> float:
        numbers = range(self._number, self._number + BATCH)
        self._number += BATCH
        began = self.now()
        body = {"records": [{"value": f"{self.name}:{number}|{self._filler}"} for number in numbers]}
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
        self.topic, self.partition, self.next = topic, partition, 0
        self._path = routes.RECORDS.format(topic=topic, partition=partition)

    def work(self) -> float:
        answer = self.call("GET", self._path, params={"offset": self.next, "wait_seconds": 1, "max_records": 500})
        if answer.outcome != OK:
            return PAUSE_SECONDS
        for record in answer.body["records"]:
            value = record["value"].partition("|")[0]
            self.history.read.append(Read(self.name, 0, self.topic, self.partition, record["offset"], value, self.now()))
            self.next = record["offset"] + 1
            self.progress += 1
        return 0.0

    def is_at_end(self, ends: dict[tuple[str, int], int], since: float) -> bool:
        return self.next >= ends[self.topic, self.partition]


class Trimmer(HttpClient):
    """Trims partitions now and then, never above what their readers have noted."""

    def __init__(self, name: str, setting: Setting, readers: Sequence[NativeReader], seed: int) -> None:
        super().__init__(name, setting)
        self._readers, self._chance = readers, random.Random(f"{seed} {name}")

    def work(self) -> float:
        reader = self._chance.choice(self._readers)
        before, began = reader.next - self._chance.randrange(KEPT_MAX), self.now()
        if before > 0:
            answer = self.call("POST", routes.TRIM.format(topic=reader.topic, partition=reader.partition), json={"before_offset": before})
            self.history.trimmed.append(Trimmed(reader.topic, reader.partition, before, answer.outcome, began, self.now()))
        return TRIM_SECONDS
