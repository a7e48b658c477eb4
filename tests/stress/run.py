"""The run: threads of every face at once, and what they saw compared with what they were told."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from myqueue.protocol import routes

from . import check
from .check import Place, Sent, text_of
from .faces import FACES
from .faces.calls import Http
from .faces.face import Consumer, Face

PIECE = 10  # messages that a thread sends before it reads again
JOIN_SECONDS = 1_800.0


@dataclass(frozen=True, slots=True)
class Size:
    """Of each face: threads, topics, partitions of each, and messages that each thread sends to each topic."""

    threads: int
    topics: int
    partitions: int
    messages: int


@dataclass(slots=True)
class Result:
    """What a face's threads did, and what was wrong."""

    face: str
    sent: int = 0
    read: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)


class Work:
    """One face under stress: all its threads, and what they noted."""

    def __init__(self, face: Face, size: Size) -> None:
        self.face, self.size, self.result = face, size, Result(face.name)
        self.topics = [f"stress-{face.name}-{secrets.token_hex(3)}-{number}" for number in range(size.topics)]
        self._lock, self._all_sent = threading.Lock(), threading.Barrier(size.threads)
        self._sent: dict[str, list[Sent]] = defaultdict(list)
        self._shared: dict[str, list[Place]] = defaultdict(list)
        self._own: dict[str, list[list[Place]]] = defaultdict(list)
        self._numbers: dict[str, int] = {}

    def prepare(self) -> None:
        """The topics, and a consumer of each that the threads share."""
        for topic in self.topics:
            self.face.create(topic, self.size.partitions)
            if self.face.is_shared_once():
                self._numbers[topic] = self.face.consumer(topic, self.size.partitions).number

    def thread(self, number: int) -> threading.Thread:
        return threading.Thread(target=self._guarded, args=(number,), name=f"{self.face.name}-{number}", daemon=True)

    def judge(self) -> None:
        """After all threads have ended: every discrepancy as a sentence."""
        due = self.size.threads * self.size.messages
        for topic in self.topics:
            sent = self._sent[topic]
            found = check.stored(sent, expected=due)
            if self.face.is_shared_once():
                found += check.read_once(sent, self._shared[topic])
            for own in self._own[topic]:
                found += check.read_once(sent, own) + check.in_order(own)
            if not self._own[topic]:
                found.append("nobody read it from its beginning")
            self.result.faults += [f"{topic}: {sentence}" for sentence in found]
            self.result.sent += len(sent)
            self.result.read += len(self._shared[topic]) + sum(map(len, self._own[topic]))

    def _guarded(self, number: int) -> None:
        try:
            self._do(number)
        except threading.BrokenBarrierError:
            pass  # another thread has said why
        except Exception as error:  # noqa: BLE001 (it is told as a fault)
            self._all_sent.abort()
            with self._lock:
                self.result.faults.append(f"thread {number}: {type(error).__name__}: {error}")

    def _do(self, number: int) -> None:
        """Send to every topic, reading in between with the consumers that all share; then read those to the end, and some topics alone."""
        partitions = self.size.partitions
        with contextlib.ExitStack() as stack:
            producers = {topic: _closing(stack, self.face.producer(topic, partitions, number)) for topic in self.topics}
            shared = {topic: _closing(stack, self.face.consumer(topic, partitions, self._numbers[topic])) for topic in self._numbers}
            for begin in range(0, self.size.messages, PIECE):
                numbers = range(begin, min(begin + PIECE, self.size.messages))
                for topic, producer in producers.items():
                    places = producer.send([text_of(number, one) for one in numbers])
                    with self._lock:
                        self._sent[topic] += [Sent(number, one, place) for one, place in zip(numbers, places, strict=True)]
                for topic, consumer in shared.items():
                    for _ in numbers:
                        self._note(topic, consumer)
            self._all_sent.wait(JOIN_SECONDS)
            for topic, consumer in shared.items():
                while self._note(topic, consumer):
                    pass
            for at, topic in enumerate(self.topics):
                if at % self.size.threads == number:
                    self._read_alone(topic, _closing(stack, self.face.consumer(topic, partitions)))

    def _note(self, topic: str, consumer: Consumer) -> bool:
        places = consumer.take()
        with self._lock:
            self._shared[topic] += places
        return bool(places)

    def _read_alone(self, topic: str, consumer: Consumer) -> None:
        due, found = self.size.threads * self.size.messages, []
        if self.face.name != "sdk" and consumer.left() != due:
            raise AssertionError(f"{topic}: a new consumer has {consumer.left()} messages before it, not {due}")
        while places := consumer.take(max(0, due - len(found))):
            found += places
        if consumer.left() != 0:
            raise AssertionError(f"{topic}: {consumer.left()} messages are left to whom has read all")
        with self._lock:
            self._own[topic].append(found)


def run(bootstrap: str, size: Size, *, faces: Iterable[str] = tuple(FACES), token: str | None = None) -> list[Result]:
    """All faces at once on a cluster. The topics are deleted afterwards."""
    works = [Work(FACES[name](f"http://{bootstrap}", token), size) for name in faces]
    try:
        for work in works:
            work.prepare()
        began = time.monotonic()
        threads = {work: [work.thread(number) for number in range(size.threads)] for work in works}
        for thread in (thread for group in threads.values() for thread in group):
            thread.start()
        for work, group in threads.items():
            for thread in group:
                thread.join(max(0.0, began + JOIN_SECONDS - time.monotonic()))
                if thread.is_alive():
                    work.result.faults.append(f"{thread.name} does not end")
            work.result.seconds = time.monotonic() - began
            work.judge()
    finally:
        http = Http(f"http://{bootstrap}", token)
        there = {topic["topic"] for topic in http.call("GET", routes.TOPICS, params={"fresh": "true"})["topics"]}
        for topic in (topic for work in works for topic in work.topics if topic in there):
            http.call("DELETE", routes.TOPIC.format(topic=topic))
    return [work.result for work in works]


def _closing(stack: contextlib.ExitStack, one: Any) -> Any:
    if hasattr(one, "close"):
        stack.callback(one.close)
    return one
