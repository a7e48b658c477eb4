"""Fakes for the tests of those who use MyQueue: a cluster in memory behind the SDK's transport, and a clock set by hand.

    transport = InMemoryTransport()
    producer = MyProducer(topics=["A"], transport=transport)

It keeps the contract that the SDK relies on (all or nothing, sequences, offsets, registrations, routing), with the same
errors, and can fail as a network does. It is no substitute for a test against a real cluster.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from .client.transport import Response
from .clock import Clock, SystemClock
from .errors import (
    BadRequestError,
    DuplicateSequenceError,
    MyQueueError,
    NotFoundError,
    NotLeaderError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    SequenceGapError,
    TopicExistsError,
    UnknownConsumerError,
    UnknownPartitionError,
    UnknownTopicError,
    UnreachableError,
)
from .protocol import batch, routes, wire
from .protocol.names import check_topic_name, parse_integer
from .protocol.types import Appended, ClusterSnapshot, CommitStamp, Message, NodeAddress, PartitionInfo, ProducerSequence, TopicPartition

REQUESTS_KEPT = 8  # of a producer in a partition, as a broker keeps them


class ManualClock:
    """A Clock that moves only when it is told to."""

    def __init__(self, monotonic: float = 1_000.0, now_us: int = 1_700_000_000_000_000) -> None:
        self._monotonic = monotonic
        self._now_us = now_us

    def advance(self, seconds: float) -> None:
        """Let time pass. Can stand in for a pause."""
        self._monotonic += seconds
        self._now_us += int(seconds * 1_000_000)

    def monotonic(self) -> float:
        return self._monotonic

    def now_us(self) -> int:
        return self._now_us


class _Partition:
    def __init__(self, info: PartitionInfo) -> None:
        self.info = info
        self.entries: list[tuple[int, int, batch.Block]] = []  # base offset, append time, block
        self.start, self.end = 0, 0
        self.requests: dict[tuple[int, int], list[tuple[int, Appended]]] = {}  # by producer id and epoch: sequence, answer
        self.offsets: dict[int, int] = {}
        self.stamps: dict[int, CommitStamp] = {}  # by consumer id, of its last commit


class InMemoryTransport:
    """A Transport whose cluster is a few dictionaries. Safe to share between threads and clients.

    Faults, all of them set by the test: ``unreachable`` (base URLs, or ``"*"``) refuse every connection;
    ``lose_answers(n)`` carries the next n appends out and loses their answers; ``refuse(error, n)`` answers the next n
    appends with an error and stores nothing; ``on_request`` sees (and may raise) before anything is done.
    """

    def __init__(self, *, brokers: int = 1, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self.brokers = {number: NodeAddress(f"broker-{number}", 5000 + number) for number in range(1, brokers + 1)}
        self.unreachable: set[str] = set()
        self.on_request: Callable[[str, str], None] | None = None
        self.requests: list[tuple[str, str]] = []  # method and URL, in order
        self.heartbeats: dict[str, set[int]] = {"producers": set(), "consumers": set()}
        self._changed = threading.Condition()
        self._topics: dict[str, dict[str, Any]] = {}
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._ids = {"topics": 0, "producers": 0, "consumers": 0}
        self._version = 0
        self._wakes = 0
        self._answers_to_lose = 0
        self._refusals: list[MyQueueError] = []

    # --- for tests ---

    def lose_answers(self, count: int) -> None:
        self._answers_to_lose += count

    def refuse(self, error: MyQueueError, count: int = 1) -> None:
        self._refusals += [error] * count

    def messages(self, topic: str, partition: int = 0) -> list[Message]:
        """Everything stored in a partition."""
        with self._changed:
            held = self._partitions[TopicPartition(topic, partition)]
            return list(batch.messages_of(self._entries(held, 0, 1 << 40), topic=topic, partition=partition))

    def committed(self, topic: str, partition: int, consumer_id: int) -> int | None:
        return self._partitions[TopicPartition(topic, partition)].offsets.get(consumer_id)

    def trim(self, topic: str, partition: int, start: int) -> None:
        """Drop what is below an offset, as ``POST …/trim`` does. Raises OffsetOutOfRangeError above the end."""
        with self._changed:
            self._trim_call(self._partitions[TopicPartition(topic, partition)], {"before_offset": start})

    def wake(self) -> None:
        """End every long poll under way."""
        with self._changed:
            self._wakes += 1
            self._changed.notify_all()

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """Create a topic, or give it more partitions."""
        with self._changed:
            known = self._topics.get(topic)
            if known is None:
                known = self._topics[topic] = {"topic": topic, "topic_id": self._next("topics"), "partitions": 0, "replication_factor": 1,
                                               "config": {}}
            for number in range(known["partitions"], partitions):
                leader = sorted(self.brokers)[(known["topic_id"] + number) % len(self.brokers)]
                info = PartitionInfo(topic, known["topic_id"], number, 1, leader, (leader,))
                self._partitions[TopicPartition(topic, number)] = _Partition(info)
            known["partitions"] = max(known["partitions"], partitions)
            self._version += 1

    def delete_topic(self, topic: str) -> None:
        with self._changed:
            for number in range(self._topics.pop(topic)["partitions"]):
                del self._partitions[TopicPartition(topic, number)]
            self._version += 1

    def move_leader(self, topic: str, partition: int, broker_id: int) -> None:
        with self._changed:
            held = self._partitions[TopicPartition(topic, partition)]
            held.info = PartitionInfo(topic, held.info.topic_id, partition, held.info.epoch + 1, broker_id, (broker_id,))
            self._version += 1

    # --- Transport ---

    def request(self, method: str, url: str, *, params: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None,
                body: bytes | None = None, read_timeout_seconds: float = 10.0, repeatable: bool = False) -> Response:
        parts = urlsplit(url)
        base = f"{parts.scheme}://{parts.netloc}"
        with self._changed:
            self.requests.append((method, url))
        if self.unreachable & {base, "*"}:
            raise UnreachableError(f"no connection to {parts.netloc}")
        if self.on_request:
            self.on_request(method, url)
        try:
            return self._answer(method, parts.path, base, params or {}, headers or {}, body)
        except MyQueueError as error:
            if isinstance(error, OutcomeUnknownError):
                raise  # a lost answer
            return Response(error.status, {}, json.dumps(wire.error_to_json(error)).encode())

    def close(self) -> None:
        pass

    def _answer(self, method: str, path: str, base: str, params: Mapping[str, Any], headers: Mapping[str, str], body: bytes | None) -> Response:
        at = re.fullmatch(r"/v1/topics/([^/]+)/partitions/(\d+)(?:/(records|offsets|trim)(?:/(\d+))?)?", path)
        if at is None:
            with self._changed:
                return _json(self._cluster_call(method, path, params, json.loads(body or b"{}")))
        held = self._held(TopicPartition(at[1], int(at[2])), base)
        if at[3] is None:
            return _json({"topic": at[1], "partition": int(at[2]), "topic_id": held.info.topic_id, "start_offset": held.start,
                          "end_offset": held.end, "epoch": held.info.epoch, "leader": True})
        if at[3] == "offsets":
            return _json(self._offsets_call(held, method, int(at[4]), json.loads(body or b"{}")))
        if at[3] == "trim":
            return _json(self._trim_call(held, json.loads(body or b"{}")))
        if method == "GET":
            return self._read(held, params)
        return self._append(held, headers, body or b"")

    # --- the balancer and the managers ---

    def _cluster_call(self, method: str, path: str, params: Mapping[str, Any], body: dict[str, Any]) -> Any:
        if (method, path) == ("GET", routes.CLUSTER):
            asked = params.get("topic")
            shown = {at: held.info for at, held in self._partitions.items() if not asked or at.topic in asked}
            snapshot = ClusterSnapshot("in-memory", self._version, dict(self.brokers), shown)
            return wire.snapshot_to_json(snapshot) | {"managers": []}
        if (method, path) == ("GET", routes.BROKERS):
            return {"brokers": [self._broker(number) for number in self.brokers]}
        if (method, path) == ("GET", routes.TOPICS):
            return {"topics": list(self._topics.values())}
        if (method, path) == ("POST", routes.TOPICS):
            name = check_topic_name(body.get("topic"))
            if name in self._topics:
                raise TopicExistsError(f"topic {name!r} exists already", topic=name)
            self.create_topic(name, body.get("partitions", 1))
            return self._topics[name]
        match = re.fullmatch(r"/v1/topics/([^/]+)/partitions", path)
        if method == "POST" and match:
            return self._add_partitions(match[1], parse_integer(body.get("partitions"), name="partitions", minimum=1))
        match = re.fullmatch(r"/v1/topics/([^/]+)/lag", path)
        if method == "GET" and match:
            return self._lag(match[1], parse_integer(params.get("consumer_id"), name="consumer_id", minimum=1))
        match = re.fullmatch(r"/v1/topics/([^/]+)/search", path)
        if method == "GET" and match:
            return self._search(match[1], params)
        if (method, path) == ("POST", routes.PRODUCERS):
            return {"producers": {name: {"producer_id": self._next("producers"), "producer_epoch": 0}
                                  for name in self._existing(body["topics"], create=body.get("create", False))}}
        if (method, path) == ("POST", routes.CONSUMERS):
            return {"consumers": {name: {"consumer_id": self._next("consumers"), "partitions": self._topics[name]["partitions"]}
                                  for name in self._existing(body["topics"], create=False)}}
        if (method, path) == ("POST", routes.HEARTBEATS):
            for kind, ids in body.items():
                self.heartbeats[kind].update(ids)
            return {}
        if (method, path) == ("GET", routes.HEALTH):
            return {"brokers": [{"id": number, "state": "alive", "age_seconds": 0.0} for number in self.brokers], "managers": [],
                    "producers": [], "consumers": []}
        if method == "GET" and path.startswith(routes.TOPICS + "/"):
            return self._describe(path.rsplit("/", 1)[1])
        raise NotFoundError(f"there is no {method} {path}")

    def _broker(self, number: int) -> dict[str, Any]:
        led = sum(1 for held in self._partitions.values() if held.info.leader == number)
        return {"broker_id": number, "host": self.brokers[number].host, "port": self.brokers[number].port, "state": "alive",
                "last_heartbeat": None, "age_seconds": 0.0, "partitions": led, "leaders": led, "draining": False}

    def _add_partitions(self, name: str, wanted: int) -> dict[str, Any]:
        present = self._topics[self._existing([name], create=False)[0]]["partitions"]
        if wanted < present:
            raise BadRequestError(f"topic {name!r} has {present} partitions, and none is ever taken away", topic=name, partitions=present)
        self.create_topic(name, wanted)
        return {"topic": name, "topic_id": self._topics[name]["topic_id"], "partitions": wanted, "added": wanted - present}

    def _lag(self, name: str, consumer_id: int) -> dict[str, Any]:
        self._existing([name], create=False)
        if consumer_id > self._ids["consumers"]:
            raise UnknownConsumerError(f"consumer {consumer_id} is not registered", consumer_id=consumer_id, topic=name)
        rows = []
        for at, held in sorted(self._partitions.items()):
            if at.topic == name:
                offset = held.offsets.get(consumer_id)
                rows.append({"partition": at.partition, "offset": offset, "start_offset": held.start, "end_offset": held.end,
                             "lag": max(0, held.end - max(held.start, offset or 0))})
        return {"topic": name, "consumer_id": consumer_id, "lag": sum(row["lag"] for row in rows), "partitions": rows}

    def _search(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """All of it in one page."""
        self._existing([name], create=False)
        key = wire.value_from_json(params, "key")
        since, before = (None if params.get(of) is None else int(params[of]) for of in ("from_timestamp", "to_timestamp"))
        records, cut = [], []
        for at, held in sorted(self._partitions.items()):
            if at.topic != name:
                continue
            cut.append(held.end)
            for base, append_time, block in held.entries:
                if (since is not None and append_time < since) or (before is not None and append_time >= before):
                    continue
                records += [{"partition": at.partition, **wire.stored_to_json(offset, record, append_time)}
                            for offset, record in enumerate(batch.records_of(block), base) if offset >= held.start and key in (None, record.key)]
        return {"topic": name, "records": records, "cut": cut, "cursor": None}

    def _describe(self, name: str) -> dict[str, Any]:
        self._existing([name], create=False)
        listed = [{"partition": at.partition, "leader": held.info.leader, "replicas": list(held.info.replicas), "epoch": held.info.epoch,
                   "status": held.info.status} for at, held in sorted(self._partitions.items()) if at.topic == name]
        return self._topics[name] | {"partition_list": listed}

    def _existing(self, names: list[str], *, create: bool) -> list[str]:
        missing = [name for name in map(check_topic_name, names) if name not in self._topics]
        if missing and not create:
            raise UnknownTopicError(f"there is no topic {', '.join(missing)}", topics=missing)
        for name in missing:
            self.create_topic(name)
        return names

    def _next(self, kind: str) -> int:
        self._ids[kind] += 1
        return self._ids[kind]

    # --- the brokers ---

    def _held(self, at: TopicPartition, base: str) -> _Partition:
        held = self._partitions.get(at)
        if held is None:
            known = self._topics.get(at.topic)
            if known is None:
                raise UnknownTopicError(f"there is no topic {at.topic!r}", topics=[at.topic])
            raise UnknownPartitionError(f"topic {at.topic!r} has {known['partitions']} partitions, from 0 on", partitions=known["partitions"])
        for number, address in self.brokers.items():
            if address.url == base and number != held.info.leader:
                raise NotLeaderError(f"{at} is led by broker {held.info.leader}", leader=held.info.leader)
        return held

    def _append(self, held: _Partition, headers: Mapping[str, str], body: bytes) -> Response:
        if headers.get("Content-Type") != batch.BATCH_TYPE:
            raise BadRequestError("the fake takes batches only")
        blocks = batch.blocks_of(body)
        with self._changed:
            if self._refusals:
                raise self._refusals.pop(0)
            appended = self._stored(held, blocks, _sequence(headers))
            self._changed.notify_all()
            if self._answers_to_lose:
                self._answers_to_lose -= 1
                raise OutcomeUnknownError("the connection broke")
        return _json(wire.appended_to_json(appended))

    def _stored(self, held: _Partition, blocks: list[batch.Block], sequence: ProducerSequence | None) -> Appended:
        kept: list[tuple[int, Appended]] = []
        if sequence is not None:
            kept = held.requests.setdefault((sequence.producer_id, sequence.epoch), [])
            last = kept[-1][0] if kept else -1
            for seq, answer in kept:
                if seq == sequence.seq:
                    return replace(answer, duplicate=True)
            if sequence.seq <= last:
                raise DuplicateSequenceError(sequence=sequence.seq)
            if sequence.seq != last + 1:
                raise SequenceGapError(f"expected sequence {last + 1}, not {sequence.seq}", expected=last + 1)
        base, now = held.end, self.clock.now_us()
        for block in blocks:
            held.entries.append((held.end, now, block))
            held.end += block.count
        appended = Appended(held.info.topic, held.info.partition, base, held.end - base, now, topic_id=held.info.topic_id)
        if sequence is not None:
            kept.append((sequence.seq, appended))
            del kept[:-REQUESTS_KEPT]
        return appended

    def _read(self, held: _Partition, params: Mapping[str, Any]) -> Response:
        offset = self._start_of(held, params)
        wait_seconds = float(params.get("wait_seconds", 0.0))
        with self._changed:
            if not held.start <= offset <= held.end:
                raise OffsetOutOfRangeError(f"the log has offsets {held.start} to {held.end}", earliest=held.start, latest=held.end)
            if isinstance(self.clock, ManualClock):
                if offset == held.end:
                    self.clock.advance(wait_seconds)
            else:
                wakes = self._wakes
                self._changed.wait_for(lambda: offset < held.end or wakes != self._wakes, timeout=wait_seconds)
            body = self._entries(held, offset, int(params.get("max_bytes", 1 << 20)))
            return Response(200, {routes.OFFSET: str(offset), routes.START_OFFSET: str(held.start), routes.END_OFFSET: str(held.end),
                                  routes.EPOCH: str(held.info.epoch)}, body)

    @staticmethod
    def _start_of(held: _Partition, params: Mapping[str, Any]) -> int:
        if "timestamp" in params:
            since = parse_integer(params["timestamp"], name="timestamp")
            return next((max(base, held.start) for base, append_time, _ in held.entries if append_time >= since), held.end)
        named = {"earliest": held.start, "latest": held.end}.get(params["offset"])
        return parse_integer(params["offset"], name="offset", minimum=-(2**63)) if named is None else named

    def _entries(self, held: _Partition, offset: int, bytes_max: int) -> bytes:
        out, size = [batch.ENTRIES_MAGIC], 0
        for base, append_time, block in held.entries:
            if base + block.count <= offset:
                continue
            entry = batch.pack_entry_head(base, append_time, held.info.epoch) + batch.encode_block(block)
            if size and size + len(entry) > bytes_max:
                break
            out.append(entry)
            size += len(entry)
        return b"".join(out)

    def _trim_call(self, held: _Partition, body: dict[str, Any]) -> dict[str, Any]:
        before = parse_integer(body.get("before_offset"), name="before_offset", minimum=0)
        with self._changed:
            if before > held.end:
                raise OffsetOutOfRangeError(f"the log has offsets {held.start} to {held.end}", earliest=held.start, latest=held.end)
            held.start = max(held.start, before)
            held.entries = [entry for entry in held.entries if entry[0] + entry[2].count > held.start]
            return {"topic": held.info.topic, "partition": held.info.partition, "start_offset": held.start}

    def _offsets_call(self, held: _Partition, method: str, consumer_id: int, body: dict[str, Any]) -> dict[str, Any]:
        with self._changed:
            if method == "PUT":
                wanted, stamp, last = parse_integer(body.get("offset"), name="offset"), wire.stamp_from_json(body), held.stamps.get(consumer_id)
                if not (stamp and last and stamp.is_past(last)):
                    held.offsets[consumer_id] = wanted
                    held.stamps |= {consumer_id: stamp} if stamp else {}
            return {"consumer_id": consumer_id, "offset": held.offsets.get(consumer_id)}


def _json(body: Any) -> Response:
    return Response(200, {"Content-Type": "application/json"}, json.dumps(body).encode())


def _sequence(headers: Mapping[str, str]) -> ProducerSequence | None:
    if routes.PRODUCER_ID not in headers:
        return None
    return ProducerSequence(int(headers[routes.PRODUCER_ID]), int(headers[routes.PRODUCER_EPOCH]), int(headers[routes.PRODUCER_SEQ]))
