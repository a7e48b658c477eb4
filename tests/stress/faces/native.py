"""The native face, by plain HTTP."""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from myqueue.protocol import routes
from myqueue.protocol.batch import BATCH_TYPE, ENTRIES_TYPE, NDJSON_TYPES, end_offset_of, messages_of, pack
from myqueue.protocol.types import Record

from ..check import Place
from .calls import Http
from .face import Consumer, DiscrepancyError, Face, Follower, Producer, Witness
from .following import Polling, Streaming
from .searching import Searching, key_of

BATCH = 5  # records in a native request
READ = 20  # records in a read


class NativeTopics(Face):
    """A face whose topics are made, and whose messages are sent, as in the native one."""

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


class NativeFace(NativeTopics):
    name = "native"

    def consumer(self, topic: str, partitions: int, number: int | None = None) -> Consumer:
        return NativeConsumer(Http(self._url, self._token), topic, partitions, number)

    def followers(self, topic: str, partitions: int) -> list[Follower]:
        return [Polling(Http(self._url, self._token), topic, partitions), Streaming(self._url, self._token, topic, partitions)]

    def witnesses(self, topic: str, thread: int) -> list[Witness]:
        return [Searching(Http(self._url, self._token), topic, thread)]


class NativeProducer:
    """Batches round all partitions, by turns binary, JSON, a record a line and conditional; each is sent twice with its sequence, and stored once.

    And batches to the topic, by their key, which no sequence makes safe to repeat.
    """

    def __init__(self, http: Http, topic: str, partitions: int, thread: int) -> None:
        self._http, self._topic, self._partitions, self._key = http, topic, partitions, key_of(thread)
        self._producer = http.call("POST", routes.PRODUCERS, {"topics": [topic], "create": False})["producers"][topic]
        self._turn, self._sequences = itertools.count(thread), [0] * partitions

    def send(self, texts: Sequence[str]) -> list[Place]:
        return [place for at in range(0, len(texts), BATCH) for place in self._batch(texts[at: at + BATCH], next(self._turn))]

    def _batch(self, texts: Sequence[str], turn: int) -> list[Place]:
        kind = turn % 5
        if kind == 4:
            return self._to_topic(texts)
        partition = (turn + turn // 5) % self._partitions
        sent = self._encoded(texts, kind)
        sent["headers"] |= self._sequence(partition)
        made = self._append(partition, sent, is_conditional=kind == 3)
        again = self._http.call("POST", self._path(partition), **sent)
        if again != {**made, "duplicate": True} or made["duplicate"]:
            raise DiscrepancyError(f"the same batch twice: {made} and {again}")
        return [Place(partition, made["base_offset"] + number, text) for number, text in enumerate(texts)]

    def _encoded(self, texts: Sequence[str], kind: int) -> dict[str, Any]:
        if kind == 0:
            return {"data": pack([Record(text.encode(), self._key.encode()) for text in texts]), "headers": {"Content-Type": BATCH_TYPE}}
        records = [{"value": text, "key": self._key} for text in texts]
        if kind == 1:
            return {"data": b"".join(json.dumps(record).encode() + b"\n" for record in records), "headers": {"Content-Type": NDJSON_TYPES[0]}}
        return {"body": {"records": records}, "headers": {}}

    def _sequence(self, partition: int) -> Mapping[str, str]:
        number = self._sequences[partition]
        self._sequences[partition] += 1
        return {routes.PRODUCER_ID: str(self._producer["producer_id"]), routes.PRODUCER_EPOCH: str(self._producer["producer_epoch"]),
                routes.PRODUCER_SEQ: str(number)}

    def _append(self, partition: int, sent: dict[str, Any], *, is_conditional: bool) -> dict[str, Any]:
        """Conditionally: where the partition ends, as often as others come first; each refusal must tell of a later end."""
        if not is_conditional:
            return self._http.call("POST", self._path(partition), **sent)
        expected = self._http.call("GET", routes.PARTITION.format(topic=self._topic, partition=partition))["end_offset"]
        while True:
            sent["params"] = {"expected_end_offset": expected}
            status, told = self._http.ask("POST", self._path(partition), **sent)
            if status == 200 and told["base_offset"] == expected:
                return told
            end = told["error"]["details"]["end_offset"] if status == 409 else None
            if end is None or end <= expected:
                raise DiscrepancyError(f"an append to offset {expected} of {self._topic}/{partition}: {status} {told}")
            expected = end

    def _to_topic(self, texts: Sequence[str]) -> list[Place]:
        records = [{"value": text, "key": self._key} for text in texts]
        told = self._http.call("POST", routes.TOPIC_RECORDS.format(topic=self._topic), {"records": records})["partitions"]
        due = zlib.crc32(self._key.encode()) % self._partitions
        if [(part["partition"], part["records"]) for part in told] != [(due, list(range(len(texts))))]:
            raise DiscrepancyError(f"{len(texts)} records with key {self._key} went to {told}, not to partition {due}")
        return [Place(due, told[0]["base_offset"] + number, text) for number, text in enumerate(texts)]

    def _path(self, partition: int) -> str:
        return routes.RECORDS.format(topic=self._topic, partition=partition)


class NativeConsumer:
    """Reads round the partitions from where it says that it stands, by turns JSON and whole stored blocks, and commits what it has read."""

    def __init__(self, http: Http, topic: str, partitions: int, number: int | None) -> None:
        self._http, self._topic, self._partitions = http, topic, partitions
        self.number = number or http.call("POST", routes.CONSUMERS, {"topics": [topic]})["consumers"][topic]["consumer_id"]
        self._turn = itertools.count()

    def take(self, due: int = 0) -> list[Place]:
        for _ in range(self._partitions):
            turn = next(self._turn)
            partition = turn % self._partitions
            offset = self._offset(partition)
            found, end = (self._entries if turn // self._partitions % 2 else self._json)(partition, offset)
            if found:
                done = self._http.call("PUT", self._at(partition), {"offset": end})["offset"]
                if done != end:
                    raise DiscrepancyError(f"offset {end} was committed, {done} is told")
                return found
        return []

    def _json(self, partition: int, offset: int) -> tuple[list[Place], int]:
        told = self._http.call("GET", self._records(partition), params={"offset": offset, "max_records": READ})
        return [Place(partition, record["offset"], record["value"]) for record in told["records"]], told["next_offset"]

    def _entries(self, partition: int, offset: int) -> tuple[list[Place], int]:
        answer = self._http.answer("GET", self._records(partition), params={"offset": offset, "max_records": READ}, headers={"Accept": ENTRIES_TYPE})
        if (answer.status_code, answer.headers["Content-Type"]) != (200, ENTRIES_TYPE):
            raise DiscrepancyError(f"blocks of {self._topic}/{partition} from {offset}: {answer.status_code} {answer.text}")
        messages = messages_of(answer.content, topic=self._topic, partition=partition, from_offset=offset)
        return [Place(partition, message.offset, message.text()) for message in messages], end_offset_of(answer.content) or offset

    def left(self) -> int:
        left = 0
        for partition in range(self._partitions):
            end = self._http.call("GET", routes.PARTITION.format(topic=self._topic, partition=partition))["end_offset"]
            left += end - self._offset(partition)
        told = lag_of(self._http, self._topic, self.number)
        if told != left:
            raise DiscrepancyError(f"consumer {self.number} of {self._topic} has {left} messages before it, its lag is told as {told}")
        return left

    def _offset(self, partition: int) -> int:
        return self._http.call("GET", self._at(partition))["offset"] or 0  # none before the first commit

    def _at(self, partition: int) -> str:
        return routes.OFFSETS.format(topic=self._topic, partition=partition, consumer_id=self.number)

    def _records(self, partition: int) -> str:
        return routes.RECORDS.format(topic=self._topic, partition=partition)


def lag_of(http: Http, topic: str, consumer_id: int) -> int:
    """A consumer's lag, which its partitions must add up to."""
    told = http.call("GET", routes.LAG.format(topic=topic), params={"consumer_id": consumer_id})
    if told["lag"] != sum(part["lag"] for part in told["partitions"]):
        raise DiscrepancyError(f"the lags of {topic} do not add up: {told}")
    return int(told["lag"])
