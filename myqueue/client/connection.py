"""A client's way into the cluster: bounded calls to the balancer and, by partition, to the leaders; the routing picture behind it."""

from __future__ import annotations

import json as jsonlib
import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ..clock import Clock, SystemClock
from ..errors import UNKNOWN, MyQueueError, NotLeaderError, UnavailableError, UnknownPartitionError, UnknownTopicError, UnreachableError
from ..protocol import routes, wire
from ..protocol.types import ClusterSnapshot, TopicPartition
from .backoff import Backoff
from .endpoints import Endpoints, parse_bootstrap
from .transport import READ_TIMEOUT_SECONDS, RequestsTransport, Response, Transport, raise_for, understood

T = TypeVar("T")
STALE_ROUTE = (NotLeaderError, UnreachableError, UnknownPartitionError, UnknownTopicError)
REFRESH_INTERVAL_SECONDS = 0.2  # failures in a burst ask for the picture once
INDEX_KEPT_SECONDS = 10.0  # for so long reads ask for what was written; by then every manager that is not cut off has it


class Connection:
    """Shared by a client's threads. Every call is bounded; what no node answered is UnreachableError or OutcomeUnknownError."""

    def __init__(self, broker: str | Sequence[str], *, token: str | None = None, transport: Transport | None = None,
                 clock: Clock | None = None, pause: Callable[[float], object] | None = None, backoff: Backoff | None = None) -> None:
        self.endpoints = Endpoints(parse_bootstrap(broker))
        self.clock = clock or SystemClock()
        self.backoff = backoff or Backoff()
        self._transport = transport or RequestsTransport(token=token)
        self._stop = threading.Event()
        self._pause = pause or self._stop.wait
        self._lock = threading.Lock()
        self._topics: set[str] = set()
        self._refreshed_at = float("-inf")
        self.is_stale = True  # a failure spoke against the picture
        self._written = (0, float("-inf"))  # the metadata index behind the last write that was answered, and when

    def __repr__(self) -> str:
        return f"Connection({self.endpoints!r})"

    # --- calls to any node ---

    def call(self, method: str, path: str, *, json: Any = None, params: Mapping[str, Any] | None = None,
             read_timeout_seconds: float = READ_TIMEOUT_SECONDS, repeatable: bool = True) -> Any:
        """One JSON call by way of an address that was given. A read shows what this client wrote just before. Raises MyQueueError."""
        now = self.clock.monotonic()
        with self._lock:
            base, (index, written_at) = self.endpoints.bootstrap_url(now), self._written
        headers = {} if json is None else {"Content-Type": "application/json"}
        if method == "GET" and now - written_at <= INDEX_KEPT_SECONDS:
            headers[routes.PREFER_INDEX] = str(index)
        body = None if json is None else jsonlib.dumps(json).encode()
        answer = self._exchange(base, method, path, params=params, headers=headers, body=body,
                                read_timeout_seconds=read_timeout_seconds, repeatable=repeatable)
        raise_for(answer)
        applied = answer.headers.get(routes.APPLIED_INDEX, "")
        if method != "GET" and applied.isdecimal():
            with self._lock:
                self._written = (max(int(applied), self._written[0]), self.clock.monotonic())
        return answer.json() if answer.body else {}

    def persistently(self, attempt: Callable[[], T], timeout_seconds: float) -> T:
        """Repeat what fails with a retriable error, with back-off, for so long; then raise its last error."""
        deadline = self.clock.monotonic() + timeout_seconds
        failures = 0
        while True:
            try:
                with understood():
                    return attempt()
            except MyQueueError as error:
                failures += 1
                delay = self.backoff.delay_seconds(failures, random.random())
                if not error.retriable or self._stop.is_set() or self.clock.monotonic() + delay > deadline:
                    raise
            self._pause(delay)

    # --- calls to a partition's leader ---

    def partition_call(self, partition: TopicPartition, method: str, path: str, *, params: Mapping[str, Any] | None = None,
                       headers: Mapping[str, str] | None = None, body: bytes | None = None, read_timeout_seconds: float = READ_TIMEOUT_SECONDS,
                       repeatable: bool = False) -> Response:
        """One call to the partition's leader, through the balancer where that cannot be reached.

        Raises:
            MyQueueError: what was answered; the picture is refreshed before the next call where it seems out of date.
        """
        with self._lock:
            base = self.endpoints.partition_url(partition, self.clock.monotonic())

        try:
            answer = self._exchange(base, method, path, params=params, headers=headers, body=body,
                                    read_timeout_seconds=read_timeout_seconds, repeatable=repeatable)
            raise_for(answer)
        except MyQueueError as error:
            if isinstance(error, STALE_ROUTE) or error.outcome == UNKNOWN:
                with self._lock:
                    self.is_stale = True
            raise
        return answer

    def _exchange(self, base: str, method: str, path: str, **arguments: Any) -> Response:
        """Send a request and keep account of who answers: any status is an answer."""
        started = self.clock.monotonic()
        try:
            answer = self._transport.request(method, base + path, **arguments)
        except MyQueueError:
            with self._lock:
                self.endpoints.failed(base, started=started, now=self.clock.monotonic())
            raise
        with self._lock:
            self.endpoints.answered(base)
        return answer

    # --- the routing picture ---

    @property
    def snapshot(self) -> ClusterSnapshot:
        return self.endpoints.snapshot

    def watch(self, topics: Iterable[str]) -> None:
        """Hold these topics in the picture from the next refresh on."""
        with self._lock:
            self._topics.update(topics)
            self.is_stale = True

    def refresh(self, *, when_stale: bool = False) -> ClusterSnapshot:
        """Ask for the picture; with ``when_stale`` only where a failure spoke against it and not just now. Raises MyQueueError."""
        with self._lock:
            now = self.clock.monotonic()
            if when_stale and (not self.is_stale or now - self._refreshed_at < REFRESH_INTERVAL_SECONDS):
                return self.endpoints.snapshot
            self._refreshed_at = now
            topics = sorted(self._topics)
        snapshot = wire.snapshot_from_json(self.call("GET", routes.CLUSTER, params={"topic": topics}))
        with self._lock:
            if self.endpoints.learn(snapshot):
                self.is_stale = any(info.leader is None for info in snapshot.partitions.values())  # an election: soon there is another picture
            return self.endpoints.snapshot

    def refresh_until(self, topics: Sequence[str], timeout_seconds: float) -> ClusterSnapshot:
        """The picture once it holds these topics, each with its partitions. Raises UnavailableError, UnknownTopicError … after the time."""
        self.watch(topics)

        def attempt() -> ClusterSnapshot:
            snapshot = self.refresh()
            missing = [topic for topic in topics if not snapshot.partition_count(topic)]
            if missing:
                raise UnavailableError(f"the cluster does not show topic {', '.join(missing)} yet", topics=missing)
            return snapshot

        return self.persistently(attempt, timeout_seconds)

    def is_silent(self, seconds: float) -> bool:
        """Whether no node has answered for so long although some were asked."""
        with self._lock:
            return self.endpoints.silent_seconds(self.clock.monotonic()) >= seconds

    @property
    def is_failing(self) -> bool:
        """Whether the last node asked did not answer."""
        return self.endpoints.failing_since is not None

    def close(self) -> None:
        """End every pause at once and close idle connections."""
        self._stop.set()
        close = getattr(self._transport, "close", None)
        if close:
            close()
