"""A reader of Server-Sent Events, by the letter of the standard, over one socket."""

from __future__ import annotations

import http.client
import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.raw_http import RawConnection


@dataclass(frozen=True)
class Event:
    """One event. ``id`` is the last one that was told."""

    name: str
    data: str
    id: str

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class EventStream:
    """An open stream. ``status`` and ``headers`` of the answer are there at once."""

    def __init__(self, port: int, target: str, *, last_event_id: object = None, headers: Mapping[str, str] = {},
                 timeout_seconds: float = 20.0, host: str = "127.0.0.1") -> None:
        self._connection = RawConnection(port, host=host)
        self.wait_at_most(timeout_seconds)
        lines = [f"GET {target} HTTP/1.1", "Host: test", "Accept: text/event-stream", *(f"{name}: {value}" for name, value in headers.items())]
        if last_event_id is not None:
            lines.append(f"Last-Event-ID: {last_event_id}")
        self._connection.send("\r\n".join(lines).encode() + b"\r\n\r\n")
        self.response = http.client.HTTPResponse(self._connection.sock)
        self.response.begin()
        self.status, self.headers = self.response.status, self.response.headers
        self.last_id, self.comments = "", list[str]()

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def wait_at_most(self, seconds: float) -> None:
        """Of what comes from here on: a ``next`` that waits longer raises TimeoutError, and the stream is of no more use."""
        self._connection.sock.settimeout(seconds)

    def next(self) -> Event | None:
        """The next event; None where the stream has ended as it should. A stream that breaks off raises."""
        name, data = "message", list[str]()
        while line := self.response.readline():
            assert line.endswith(b"\n"), "a line that is cut off"
            field, _, value = line[:-1].decode().partition(":")
            value = value.removeprefix(" ")
            if not field and value:
                self.comments.append(value)
            elif field == "id":
                self.last_id = value
            elif field == "data":
                data.append(value)
            elif field == "event":
                name = value
            elif not field and data:
                return Event(name, "\n".join(data), self.last_id)
        return None

    def take(self, count: int) -> list[Event]:
        """So many events; the stream must not end before."""
        events = [self.next() for _ in range(count)]
        assert None not in events, f"the stream ended after {events.index(None)} events"
        return events  # type: ignore[return-value]

    def close(self, *, reset: bool = False) -> None:
        if reset:
            self._connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.response.close()
        self._connection.sock.close()
