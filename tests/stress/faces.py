"""The operations of each face, as a producer and a consumer use them. Each object is used by one thread, but for a shared consumer's number."""

from __future__ import annotations

import itertools
import time
import zlib
from collections.abc import Sequence
from typing import Any, Protocol

import requests

from myqueue import MyConsumer, MyProducer
from myqueue.errors import NOT_DONE
from myqueue.protocol import routes
from myqueue.protocol.batch import BATCH_TYPE, pack
from myqueue.protocol.types import Record

from .check import Place

CALL_SECONDS = 30.0
PAUSE_SECONDS = 0.3  # after which nothing more is expected of the SDK
BATCH = 5  # records in a native request


class DiscrepancyError(AssertionError):
    """An answer is not what it must be."""


class Producer(Protocol):
    def send(self, texts: Sequence[str]) -> list[Place]:
        """Where the messages stand, which are stored when this returns."""
        ...


class Consumer(Protocol):
    number: int  # of the registration

    def take(self, due: int = 0) -> list[Place]:
        """The next messages; none where there is nothing left. ``due``: so many more are known to be there."""
        ...

    def left(self) -> int:
        """How many messages this consumer has not read."""
        ...


class Http:
    """Calls to the balancer, in one thread."""

    def __init__(self, url: str, token: str | None) -> None:
        self._url, self._session = url, requests.Session()
        self._session.trust_env = False
        if token:
            self._session.headers["Authorization"] = f"Bearer {token}"

    def call(self, method: str, path: str, body: Any = None, *, status: int = 200, data: bytes | None = None, headers: Any = None,
             params: Any = None) -> dict[str, Any]:
        """The JSON of the answer. Raises DiscrepancyError for another status."""
        got, told = self.ask(method, path, body, data=data, headers=headers, params=params)
        if got != status:
            raise DiscrepancyError(f"{method} {path} {body or params}: {got} {told}")
        return told

    def ask(self, method: str, path: str, body: Any = None, *, data: bytes | None = None, headers: Any = None,
            params: Any = None) -> tuple[int, dict[str, Any]]:
        """Status and JSON of the answer. What was refused because too much is under way, and surely not done, is sent again, as clients do."""
        end = time.monotonic() + CALL_SECONDS
        while True:
            answer = self._session.request(method, self._url + path, json=body, data=data, headers=headers, params=params, timeout=CALL_SECONDS)
            told = answer.json()
            if answer.status_code not in (429, 503) or told.get("error", told).get("outcome") != NOT_DONE or time.monotonic() > end:
                return answer.status_code, told
            time.sleep(float(answer.headers["Retry-After"]) / 2)


class Face(Protocol):
    """One face on one cluster. ``name`` begins its topics' names."""

    name: str

    def create(self, topic: str, partitions: int) -> None: ...

    def producer(self, topic: str, partitions: int, thread: int) -> Producer: ...

    def consumer(self, topic: str, partitions: int, number: int | None = None) -> Consumer:
        """A new consumer, or another user of one that is registered."""
        ...

    def is_shared_once(self) -> bool:
        """Whether two users of one registration get each message once between them."""
        ...


class QueueFace:
    name = "queue"

    def __init__(self, url: str, token: str | None) -> None:
        self._url, self._token = url, token

    def is_shared_once(self) -> bool:
        return True

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


class PartitionFace:
    name = "partition"

    def __init__(self, url: str, token: str | None) -> None:
        self._url, self._token = url, token

    def is_shared_once(self) -> bool:
        return True

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


class SdkFace(NativeFace):
    """The SDK's producer and consumer; topics as in the native face."""

    name = "sdk"

    def producer(self, topic: str, partitions: int, thread: int) -> Producer:
        return SdkProducer(self._url.removeprefix("http://"), topic, partitions, thread, self._token)

    def consumer(self, topic: str, partitions: int, number: int | None = None) -> Consumer:
        return SdkConsumer(self._url.removeprefix("http://"), topic, number, self._token)


class SdkProducer:
    """By turns with a partition, with a key, and without either."""

    def __init__(self, address: str, topic: str, partitions: int, thread: int, token: str | None) -> None:
        self._producer, self._topic, self._partitions = MyProducer([topic], broker=address, token=token), topic, partitions
        self._turn = itertools.count(thread)

    def send(self, texts: Sequence[str]) -> list[Place]:
        deliveries = []
        for text in texts:
            turn = next(self._turn)
            more: dict[str, Any] = ({"partition": turn % self._partitions}, {"key": f"k{turn}"}, {})[turn % 3]
            deliveries.append(self._producer.send(self._topic, text, **more))
        receipts = [delivery.result(CALL_SECONDS) for delivery in deliveries]
        return [Place(receipt.partition, receipt.offset, text) for receipt, text in zip(receipts, texts, strict=True)]

    def close(self) -> None:
        self._producer.stop()


class SdkConsumer:
    def __init__(self, address: str, topic: str, number: int | None, token: str | None) -> None:
        self._consumer, self.number = MyConsumer([topic], broker=address, token=token, consumer_id=number), number or 0

    def take(self, due: int = 0) -> list[Place]:
        """All that is due, or what comes without a pause where nothing is; committed. Its silence says nothing: the machine may be busy."""
        found = []
        for message in self._consumer.get_next(timeout_seconds=CALL_SECONDS if due else PAUSE_SECONDS):
            found.append(Place(message.partition, message.offset, message.text()))
            if len(found) == due:
                break
        self._consumer.commit()
        return found

    def left(self) -> int:
        return 0  # told by nobody: what was read is counted

    def close(self) -> None:
        self._consumer.stop()


FACES = {face.name: face for face in (QueueFace, PartitionFace, NativeFace, SdkFace)}
