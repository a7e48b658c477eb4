"""Readers of the native face that follow a topic while others write: by long polls, and by Server-Sent Events."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from urllib.parse import urlsplit

from myqueue.protocol import routes
from tests.support.events import EventStream

from ..check import Place
from .calls import Http
from .face import CALL_SECONDS, DiscrepancyError

POLL_SECONDS = 0.5  # that a poll waits
QUIET_SECONDS = 0.3  # after which a stream is given up, and the next one begun
EVENTS = 25  # that are read of a stream before its client goes, in the middle of whatever comes


class Polling:
    """Long polls round the partitions."""

    def __init__(self, http: Http, topic: str, partitions: int) -> None:
        self._http, self._topic, self._offsets = http, topic, [0] * partitions
        self._turn = itertools.count()

    def take(self) -> list[Place]:
        partition = next(self._turn) % len(self._offsets)
        told = self._http.call("GET", routes.RECORDS.format(topic=self._topic, partition=partition), params={
            "offset": self._offsets[partition], "wait_seconds": POLL_SECONDS})
        self._offsets[partition] = told["next_offset"]
        return [Place(partition, record["offset"], record["value"]) for record in told["records"]]


class Streaming:
    """Streams round the partitions, each resumed behind the last event that came."""

    def __init__(self, url: str, token: str | None, topic: str, partitions: int) -> None:
        self._at, self._headers = urlsplit(url), {"Authorization": f"Bearer {token}"} if token else {}
        self._topic, self._last_ids = topic, [-1] * partitions
        self._turn = itertools.count()

    def take(self) -> list[Place]:
        partition = next(self._turn) % len(self._last_ids)
        path = routes.RECORDS.format(topic=self._topic, partition=partition)
        with EventStream(self._at.port or 80, path, host=self._at.hostname or "", last_event_id=self._last_ids[partition], headers=self._headers,
                         timeout_seconds=CALL_SECONDS) as stream:
            if stream.status in (429, 503):
                return []
            if stream.status != 200:
                raise DiscrepancyError(f"a stream of {path} behind {self._last_ids[partition]}: {stream.status}")
            stream.wait_at_most(QUIET_SECONDS)
            return [self._noted(partition, place) for place in itertools.islice(self._events(stream, partition), EVENTS)]

    def _events(self, stream: EventStream, partition: int) -> Iterator[Place]:
        try:
            while event := stream.next():
                if event.name != "message" or int(event.id) != event.json["offset"]:
                    raise DiscrepancyError(f"a stream of {self._topic}/{partition}: {event}")
                yield Place(partition, int(event.id), event.json["value"])
        except TimeoutError:
            return

    def _noted(self, partition: int, place: Place) -> Place:
        self._last_ids[partition] = place.offset
        return place
