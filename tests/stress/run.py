"""The run: threads of every face at once, and what they saw compared with what they were told."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from myqueue.protocol import routes
from tests.support.waiting import wait_until

from . import check
from .check import Place, Sent, text_of
from .faces import FACES
from .faces.calls import Http
from .faces.face import Consumer, Face, Follower, Producer

PIECE = 10  # messages that a thread sends before it reads again
JOIN_SECONDS = 1_800.0
SILENCE_SECONDS = 120.0  # in which something that is due must come


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
        self._due = size.threads * size.messages  # in each topic
        self._lock, self._all_sent = threading.Lock(), threading.Barrier(size.threads)
        self._sent: dict[str, list[Sent]] = defaultdict(list)
        self._shared: dict[str, dict[int, list[Place]]] = defaultdict(lambda: defaultdict(list))  # by thread
        self._own: dict[str, list[list[Place]]] = defaultdict(list)
        self._numbers: dict[str, int] = {}

    def prepare(self) -> None:
        """The topics, and a consumer of each that the threads share."""
        for topic in self.topics:
            self.face.create(topic, self.size.partitions)
            if self.face.is_shared_once:
                with contextlib.ExitStack() as stack:
                    self._numbers[topic] = _closing(stack, self.face.consumer(topic, self.size.partitions)).number

    def threads(self) -> list[threading.Thread]:
        """Those that send and read by turns, and those that follow what the others send."""
        made = [self._thread(f"{number}", self._do, number) for number in range(self.size.threads)]
        return made + [self._thread(f"{type(follower).__name__} {topic}", self._follow, topic, follower)
                       for topic in self.topics for follower in self.face.followers(topic, self.size.partitions)]

    def judge(self) -> None:
        """After all threads have ended: every discrepancy as a sentence."""
        for topic in self.topics:
            found = self._wrong(topic)
            self.result.faults += [f"{topic}: {sentence}" for sentence in found]
            self.result.sent += len(self._sent[topic])
            self.result.read += sum(map(len, self._shared[topic].values())) + sum(map(len, self._own[topic]))

    def _wrong(self, topic: str) -> list[str]:
        sent, again = self._sent[topic], self.face.may_come_again()
        found = check.stored(sent, expected=self._due)
        if self.face.is_shared_once:
            found += check.read_once(sent, itertools.chain(*self._shared[topic].values()), may_come_again=again)
            for one in self._shared[topic].values():
                found += check.in_order([place for place in one if place not in again])
        for own in self._own[topic]:
            found += check.read_once(sent, own) + check.in_order(own)
        return found if self._own[topic] else [*found, "nobody read it from its beginning"]

    def _thread(self, name: str, do: Callable[..., None], *arguments: Any) -> threading.Thread:
        return threading.Thread(target=self._guarded, args=(name, do, *arguments), name=f"{self.face.name}: thread {name}", daemon=True)

    def _guarded(self, name: str, do: Callable[..., None], *arguments: Any) -> None:
        try:
            do(*arguments)
        except threading.BrokenBarrierError:
            pass  # another thread has said why
        except Exception as error:  # noqa: BLE001 (it is told as a fault)
            self._all_sent.abort()
            with self._lock:
                self.result.faults.append(f"thread {name}: {type(error).__name__}: {error}")

    def _do(self, number: int) -> None:
        """Send to every topic, reading in between with the consumers that all share; then read those to the end, and some topics alone."""
        partitions = self.size.partitions
        with contextlib.ExitStack() as stack:
            producers = {topic: _closing(stack, self.face.producer(topic, partitions, number)) for topic in self.topics}
            witnesses = {topic: self.face.witnesses(topic, number) for topic in self.topics}
            shared = {topic: _closing(stack, self.face.consumer(topic, partitions, self._numbers[topic])) for topic in self._numbers}
            mine: dict[str, list[Place]] = defaultdict(list)
            for begin in range(0, self.size.messages, PIECE):
                numbers = range(begin, min(begin + PIECE, self.size.messages))
                for topic, producer in producers.items():
                    mine[topic] += self._send(topic, producer, number, numbers)
                    for witness in witnesses[topic]:
                        witness.look(mine[topic])
                for topic, consumer in shared.items():
                    self._read_shared(topic, consumer, number, len(numbers))
            self._all_sent.wait(JOIN_SECONDS)
            for topic, consumer in shared.items():
                self._read_out(topic, consumer, number)
            for at, topic in enumerate(self.topics):
                if at % self.size.threads == number:
                    self._read_alone(topic, _closing(stack, self.face.consumer(topic, partitions)))

    def _send(self, topic: str, producer: Producer, thread: int, numbers: range) -> list[Place]:
        places = producer.send([text_of(thread, one) for one in numbers])
        with self._lock:
            self._sent[topic] += [Sent(thread, one, place) for one, place in zip(numbers, places, strict=True)]
        return places

    def _read_shared(self, topic: str, consumer: Consumer, thread: int, count: int) -> None:
        """As many as were sent, or as there are now."""
        while count > 0 and (found := self._note(topic, consumer, thread)):
            count -= found

    def _read_out(self, topic: str, consumer: Consumer, thread: int) -> None:
        def is_read_out() -> bool:
            while self._note(topic, consumer, thread):
                pass
            return consumer.left() == 0 or self._all_sent.broken

        wait_until(is_read_out, what=f"all of {topic} to be read", timeout_seconds=JOIN_SECONDS)

    def _note(self, topic: str, consumer: Consumer, thread: int) -> int:
        """How many came."""
        places = consumer.take()
        with self._lock:
            self._shared[topic][thread] += places
        return len(places)

    def _read_alone(self, topic: str, consumer: Consumer) -> None:
        found: list[Place] = []
        if (left := consumer.left()) != self._due:
            raise AssertionError(f"{topic}: a new consumer has {left} messages before it, not {self._due}")
        while places := consumer.take(max(0, self._due - len(found))):
            found += places
        if (left := consumer.left()) != 0:
            raise AssertionError(f"{topic}: {left} messages are left to whom has read all")
        with self._lock:
            self._own[topic].append(found)

    def _follow(self, topic: str, follower: Follower) -> None:
        """Everything, as it comes, as long as the others go on."""
        found: list[Place] = []
        heard = time.monotonic()
        while len(found) < self._due and not self._all_sent.broken:
            if places := follower.take():
                found += places
                heard = time.monotonic()
            elif time.monotonic() > heard + SILENCE_SECONDS:
                raise AssertionError(f"{topic}: nothing came for {SILENCE_SECONDS:g} s, behind {len(found)} messages of {self._due}")
        with self._lock:
            self._own[topic].append(found)


def run(bootstrap: str, size: Size, *, faces: Iterable[str] = tuple(FACES), token: str | None = None) -> list[Result]:
    """All faces at once on a cluster. The topics are deleted afterwards."""
    works = [Work(FACES[name](f"http://{bootstrap}", token), size) for name in faces]
    try:
        for work in works:
            work.prepare()
        began = time.monotonic()
        threads = {work: work.threads() for work in works}
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
            _forget_groups(http, topic)
            http.call("DELETE", routes.TOPIC.format(topic=topic))
    return [work.result for work in works]


def _forget_groups(http: Http, topic: str) -> None:
    """Those without members: a member that could not leave, which has been told as a fault, is there until its session ends."""
    for group in http.call("GET", routes.GROUPS)["groups"]:
        if group["group"].startswith(topic + "-") and group["members"] == 0:
            http.call("DELETE", routes.GROUP.format(group=group["group"]))


def _closing(stack: contextlib.ExitStack, one: Any) -> Any:
    if hasattr(one, "close"):
        stack.callback(one.close)
    return one
