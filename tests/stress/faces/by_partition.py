"""The partition face."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ..check import Place
from .calls import Http
from .face import Consumer, DiscrepancyError, Face, Producer


class PartitionFace(Face):
    name = "partition"
    is_shared_once = True

    def create(self, topic: str, partitions: int) -> None:
        """With one partition, and the others added one by one."""
        http = Http(self._url, self._token)
        http.call("POST", "/topics", {"name": topic})
        producer_id = http.call("POST", "/producers", {"topic": topic}, status=201)["producer_id"]
        more = {"topic": topic, "producer_id": producer_id}
        added = [http.call("POST", "/partitions", more, status=201)["partition_id"] for _ in range(1, partitions)]
        told = http.call("GET", "/partitions", params={"topic": topic})["partitions"]
        if added != list(range(1, partitions)) or [one["partition_id"] for one in told] != list(range(partitions)):
            raise DiscrepancyError(f"{topic} has the partitions {told}, {added} were added")
        http.call("GET", "/raft_status")

    def producer(self, topic: str, partitions: int, thread: int) -> Producer:
        return PartitionProducer(Http(self._url, self._token), topic, partitions, thread)

    def consumer(self, topic: str, partitions: int, number: int | None = None) -> Consumer:
        return PartitionConsumer(Http(self._url, self._token), topic, partitions, number)


class PartitionProducer:
    """Round all partitions, by turns under either name of the path."""

    def __init__(self, http: Http, topic: str, partitions: int, thread: int) -> None:
        self._http, self._topic, self._partitions = http, topic, partitions
        self._producer_id = http.call("POST", "/producers", {"topic": topic}, status=201)["producer_id"]
        self._turn = itertools.count(thread)

    def send(self, texts: Sequence[str]) -> list[Place]:
        return [self._one(text, next(self._turn)) for text in texts]

    def _one(self, text: str, turn: int) -> Place:
        made = self._http.call("POST", ("/messages", "/logs")[turn % 2], {
            "topic": self._topic, "producer_id": str(self._producer_id), "partition": turn % self._partitions, "message": text}, status=201)
        return Place(made["partition_id"], made["offset"], text)


class PartitionConsumer:
    """Round all partitions: a call gives the next message of one."""

    def __init__(self, http: Http, topic: str, partitions: int, number: int | None) -> None:
        self._http, self._topic, self._partitions = http, topic, partitions
        self.number = number or http.call("POST", "/consumers", {"topic": topic}, status=201)["consumer_id"]
        self._turn = itertools.count()

    def take(self, due: int = 0) -> list[Place]:
        for _ in range(self._partitions):
            turn = next(self._turn)
            named = {"topic": self._topic, "consumer_id": self.number, "partition": turn % self._partitions}
            told = self._http.call("GET", ("/messages", "/logs")[turn // self._partitions % 2], named if turn % 2 else None,
                                   params=None if turn % 2 else named)
            if told.get("empty") is not True:
                return [Place(told["partition_id"], told["offset"], told["message"])]
        return []

    def left(self) -> int:
        return int(self._http.call("GET", "/size", params={"topic": self._topic, "consumer_id": self.number})["size"])
