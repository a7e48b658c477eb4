"""The queue face."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from typing import Any

from ..check import Place
from .calls import Http
from .face import Consumer, DiscrepancyError, Face, Producer


class QueueFace(Face):
    name = "queue"
    is_shared_once = True

    def create(self, topic: str, partitions: int) -> None:
        http = Http(self._url, self._token)
        http.call("POST", "/topics", {"topic": topic, "partitions": partitions})
        if topic not in http.call("GET", "/topics")["topics"]:
            raise DiscrepancyError(f"{topic} is not in the list of topics")
        http.call("POST", "/topics", {"topic": topic}, status=400)  # the same again is a mistake, and told

    def producer(self, topic: str, partitions: int, thread: int) -> Producer:
        return QueueProducer(Http(self._url, self._token), topic, partitions, thread)

    def consumer(self, topic: str, partitions: int, number: int | None = None) -> Consumer:
        return QueueConsumer(Http(self._url, self._token), topic, number)


class QueueProducer:
    """By turns with a partition, with a key, and without either."""

    def __init__(self, http: Http, topic: str, partitions: int, thread: int) -> None:
        self._http, self._topic, self._partitions = http, topic, partitions
        self._producer_id = http.call("POST", "/producer/register", {"topic": topic})["producer_id"]
        self._turn = itertools.count(thread)

    def send(self, texts: Sequence[str]) -> list[Place]:
        return [self._one(text, next(self._turn)) for text in texts]

    def _one(self, text: str, turn: int) -> Place:
        more: dict[str, Any] = ({"partition": turn % self._partitions}, {"key": f"k{turn}"}, {})[turn % 3]
        made = self._http.call("POST", "/producer/produce", {"topic": self._topic, "producer_id": self._producer_id, "message": text, **more})
        due = more.get("partition", zlib.crc32(more["key"].encode()) % self._partitions if "key" in more else made["partition_id"])
        if due != made["partition_id"]:
            raise DiscrepancyError(f"{more} went to partition {made['partition_id']}, not {due}")
        return Place(made["partition_id"], made["offset"], text)


class QueueConsumer:
    """By turns with GET and query, with POST and JSON, and with a request_id whose answer is asked for twice."""

    def __init__(self, http: Http, topic: str, number: int | None) -> None:
        self._http, self._topic = http, topic
        self.number = number or http.call("POST", "/consumer/register", {"topic": topic})["consumer_id"]
        self._turn = itertools.count()

    def take(self, due: int = 0) -> list[Place]:
        named, turn = {"topic": self._topic, "consumer_id": self.number}, next(self._turn)
        if turn % 3 == 0:
            return self._consumed("GET", params=named)
        if turn % 3 == 1:
            return self._consumed("POST", named)
        named["request_id"] = f"{id(self)}-{turn}"
        first, second = self._consumed("POST", named), self._consumed("POST", named)
        if first and first != second:
            raise DiscrepancyError(f"the same request_id gave {first} and then {second}")
        return second

    def left(self) -> int:
        named = {"topic": self._topic, "consumer_id": self.number}
        told, alias = self._http.call("GET", "/size", params=named), self._http.call("GET", "/unread_messages", named)
        if told["size"] != sum(one["size"] for one in told["sizes"]) or alias["message_size"] != told["size"]:
            raise DiscrepancyError(f"the sizes of {self._topic} do not agree: {told} {alias}")
        return told["size"]

    def _consumed(self, method: str, body: Any = None, params: Any = None) -> list[Place]:
        status, told = self._http.ask(method, "/consumer/consume", body, params=params)
        if status == 400 and told.get("empty") is True:
            return []
        if status != 200 or told["message"] != told["log_message"]:
            raise DiscrepancyError(f"consume {body or params}: {status} {told}")
        return [Place(told["partition_id"], told["offset"], told["message"])]
