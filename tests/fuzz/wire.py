"""One request and its answer, as bytes: sent exactly as it was drawn, and never waited for without a bound."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from myqueue.protocol.operations import EVENTS_TYPE
from tests.support.raw_http import TIMEOUT_SECONDS, RawConnection

STREAM_BYTES, STREAM_SECONDS, QUIET_SECONDS = 65_536, 1.0, 0.1  # what is read of a stream at most, and for how long nothing may come
GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"
NATIVE, QUEUE, PARTITION, FRAMING = "native", "queue", "partition", "framing"


@dataclass(frozen=True, slots=True)
class Sent:
    """A request. ``operation`` is its row; ``topic`` the one that a produce of an older face names."""

    face: str
    operation: str
    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    topic: str | None = None

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    def with_header(self, name: str, value: str) -> Sent:
        return replace(self, headers={**self.headers, name: value})

    def to_bytes(self) -> bytes:
        lines = [f"{self.method} {self.target} HTTP/1.1", "Host: fuzz", *(f"{name}: {value}" for name, value in self.headers.items())]
        if self.body:
            lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + self.body

    def as_curl(self) -> str:
        """A command line that sends it again; the body as bash writes odd bytes."""
        words = ["curl", "-s", "-X", self.method, f"$URL{self.target}", *(word for pair in self.headers.items() for word in ("-H", ": ".join(pair)))]
        body = f" --data-binary $'{''.join(_escaped(byte) for byte in self.body[:600])}'" if self.body else ""
        return shlex.join(words).replace("'$URL", "\"$URL\"'") + body


@dataclass(frozen=True, slots=True)
class Got:
    """An answer. Status 0: there was none, and ``body`` says why. ``is_open``: a stream that was left before its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float
    is_open: bool = False

    @property
    def kind(self) -> str:
        """The content type, without what comes behind it."""
        return self.headers.get("Content-Type", "").partition(";")[0]

    @property
    def json(self) -> Any:
        """The body as JSON; None where it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


class Client:
    """One connection that is kept as long as the server keeps it."""

    def __init__(self, port: int, *, token: str | None = None) -> None:
        self._port, self._token = port, token
        self._connection: RawConnection | None = None

    def ask(self, sent: Sent) -> Got:
        """The answer; one with status 0 where the connection broke or nothing came in time."""
        if self._token:
            sent = sent.with_header("Authorization", f"Bearer {self._token}")
        began = time.monotonic()
        try:
            connection = self._connection = self._connection or RawConnection(self._port)
            connection.send(sent.to_bytes())
            response = connection.begin(sent.method)
            seconds = time.monotonic() - began
            got = Got(response.status, response.headers, b"", seconds)
            got = _glimpsed(connection, response, got) if got.kind == EVENTS_TYPE else replace(
                got, body=response.read(), seconds=time.monotonic() - began)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            return Got(0, {}, f"{type(error).__name__}: {error}".encode(), time.monotonic() - began)
        if response.will_close or got.kind == EVENTS_TYPE:
            self.close()
        return got

    def close(self) -> None:
        if self._connection is not None:
            self._connection.sock.close()
            self._connection = None


def _glimpsed(connection: RawConnection, response: http.client.HTTPResponse, got: Got) -> Got:
    """What is there of a stream: its first words are waited for; then it is left as soon as nothing comes, or after a while."""
    end, body = time.monotonic() + STREAM_SECONDS, b""
    with contextlib.suppress(TimeoutError):
        while len(body) < STREAM_BYTES and time.monotonic() < end:
            piece = response.read1(STREAM_BYTES)
            if not piece:
                return replace(got, body=body)
            body += piece
            connection.sock.settimeout(QUIET_SECONDS)
    if not body:
        raise TimeoutError("a stream that does not begin")
    return replace(got, body=body, is_open=True)


def exchange(port: int, data: bytes) -> tuple[list[Got], str | None]:
    """Send bytes, end the sending, and read all answers to the connection's end; and what was wrong with that, if anything was."""
    began, received = time.monotonic(), b""
    with RawConnection(port) as connection:
        try:
            connection.send(data)
            connection.sock.shutdown(1)
            while piece := connection.sock.recv(65_536):
                received += piece
        except TimeoutError:
            return answers_in(received, time.monotonic() - began)[0], f"the connection was not ended in {TIMEOUT_SECONDS:g} s"
        except OSError:
            pass  # reset: the server did not want to read the rest
    return answers_in(received, time.monotonic() - began)


def answers_in(received: bytes, seconds: float) -> tuple[list[Got], str | None]:
    stream, found = io.BytesIO(received), []
    while received[stream.tell():] not in (b"", GO_ON):  # told to go on, who had ended its sending has no answer
        response = http.client.HTTPResponse(_Stream(stream))  # type: ignore[arg-type]
        try:
            response.begin()
            found.append(Got(response.status, response.headers, response.read(), seconds))
        except (http.client.HTTPException, ValueError) as error:
            return found, f"an answer cannot be read: {error!r} in {received[:300]!r}"
    return found, None


class _Stream:
    """What http.client wants of a socket."""

    def __init__(self, stream: io.BytesIO) -> None:
        self._stream = stream

    def makefile(self, _mode: str) -> _Kept:
        return _Kept(self._stream)


class _Kept(io.BufferedReader):
    """A reader that is closed without closing what it reads, and takes no byte too many."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, 1)  # type: ignore[arg-type]

    def close(self) -> None:
        pass


def _escaped(byte: int) -> str:
    character = chr(byte)
    return character if 32 <= byte < 127 and character not in "'\\" else f"\\x{byte:02x}"
