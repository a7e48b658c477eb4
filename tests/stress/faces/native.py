"""The native face, by plain HTTP."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from myqueue.protocol import routes
from myqueue.protocol.batch import BATCH_TYPE, pack
from myqueue.protocol.types import Record

from ..check import Place
from .calls import Http
from .face import Consumer, DiscrepancyError, Producer

BATCH = 5  # records in a native request


class NativeFace:
    name = "native"

    def __init__(self, url: str, token: str | None) -> None:
        self._url, self._token = url, token

    def is_shared_once(self) -> bool:
        return False  # its consumers say themselves how far they are

    def create(self, topic: str, partitions: int) -> None:
        http = Http(self._url, self._token)
        http.call("POST", routes.TOPICS, {"topic": topic, "partitions": partitions}, status=201)
        told = http.call("GET", routes.TOPIC.format(topic=topic))
        snapshot = http.call("GET", routes.CLUSTER, params={"topic": topic})
        if not partitions == told["partitions"] == len(told["partition_list"]) == len(snapshot["partitions"]):
            raise DiscrepancyError(f"{topic} does not have {partitions} partitions: {told} {snapshot['partitions']}")
        http.call("PATCH", routes.TOPIC.format(topic=topic), {"config": {"retention_ms": 10**12}})

    def producer(self, topic: str, partitions: int, thread: int) -> Producer:
        return NativeProducer(Http(self._url, self._token), topic, partitions, thread)

    def consumer(self, topic: str, partitions: int, number: int | None = None) -> Consumer:
        return NativeConsumer(Http(self._url, self._token), topic, partitions, number)


class NativeProducer:
    """Batches round all partitions, by turns binary and JSON; each is sent twice with its sequence, and stored once."""

    def __init__(self, http: Http, topic: str, partitions: int, thread: int) -> None:
        self._http, self._topic, self._partitions = http, topic, partitions
        self._producer = http.call("POST", routes.PRODUCERS, {"topics": [topic], "create": False})["producers"][topic]
        self._turn, self._sequences = itertools.count(thread), [0] * partitions

    def send(self, texts: Sequence[str]) -> list[Place]:
        return [place for at in range(0, len(texts), BATCH) for place in self._batch(texts[at: at + BATCH], next(self._turn))]

    def _batch(self, texts: Sequence[str], turn: int) -> list[Place]:
        partition = turn % self._partitions
        path = routes.RECORDS.format(topic=self._topic, partition=partition)
        headers = {routes.PRODUCER_ID: str(self._producer["producer_id"]), routes.PRODUCER_EPOCH: str(self._producer["producer_epoch"]),
                   routes.PRODUCER_SEQ: str(self._sequences[partition])}
        self._sequences[partition] += 1
        if turn % 2:
            data = pack([Record(text.encode()) for text in texts])
            made, again = (self._http.call("POST", path, data=data, headers={**headers, "Content-Type": BATCH_TYPE}) for _ in range(2))
        else:
            body = {"records": [{"value": text} for text in texts]}
            made, again = (self._http.call("POST", path, body, headers=headers) for _ in range(2))
        if again != {**made, "duplicate": True} or made["duplicate"]:
            raise DiscrepancyError(f"the same batch twice: {made} and {again}")
        return [Place(partition, made["base_offset"] + number, text) for number, text in enumerate(texts)]


class NativeConsumer:
    """Reads round the partitions from where it says that it stands, and commits what it has read."""

    def __init__(self, http: Http, topic: str, partitions: int, number: int | None) -> None:
        self._http, self._topic, self._partitions = http, topic, partitions
        self.number = number or http.call("POST", routes.CONSUMERS, {"topics": [topic]})["consumers"][topic]["consumer_id"]
        self._turn = itertools.count()

    def take(self, due: int = 0) -> list[Place]:
        for _ in range(self._partitions):
            partition = next(self._turn) % self._partitions
            at = routes.OFFSETS.format(topic=self._topic, partition=partition, consumer_id=self.number)
            offset = self._http.call("GET", at)["offset"] or 0  # none before the first commit
            told = self._http.call("GET", routes.RECORDS.format(topic=self._topic, partition=partition), params={"offset": offset, "max_records": 20})
            if told["records"]:
                done = self._http.call("PUT", at, {"offset": told["next_offset"]})["offset"]
                if done != told["next_offset"]:
                    raise DiscrepancyError(f"offset {told['next_offset']} was committed, {done} is told")
                return [Place(partition, record["offset"], record["value"]) for record in told["records"]]
        return []

    def left(self) -> int:
        left = 0
        for partition in range(self._partitions):
            end = self._http.call("GET", routes.PARTITION.format(topic=self._topic, partition=partition))["end_offset"]
            at = routes.OFFSETS.format(topic=self._topic, partition=partition, consumer_id=self.number)
            left += end - (self._http.call("GET", at)["offset"] or 0)
        return left
