"""Connections to the backends: bytes in, bytes out, and certainty about what was sent.

A proxy must not rewrite what it passes on, and must know whether a backend may have begun the work. An HTTP client
library does neither: it normalises paths, and repeats by itself. So requests are written here as bytes; answers are
read by the standard library's parser. Foreign exceptions become ours here.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import math
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from myqueue.clock import Clock
from myqueue.errors import BadRequestError, OutcomeUnknownError, OverloadedError, UnavailableError, UnreachableError
from myqueue.service.client_socket import HUNG_UP

from .core.routing import Backend

IDLE_SECONDS_MAX = 30.0  # below the backends' keep-alive of 75 s
PIECE_BYTES = 65_536
LOOK_SECONDS = 0.25  # between looks whether it is still of use to wait
STOP_LOOK_SECONDS = 0.5  # where that is only a look whether this process ends

Body = bytes | Iterable[bytes]


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a backend is waited for, and for whose sake.

    Args:
        timeout_seconds: bound on each wait.
        is_lost: asked now and then: true where it is known that the backend will not answer.
        client: given where nobody is harmed if the request is given up: when this client hangs up, or this process ends.
    """

    timeout_seconds: float
    is_lost: Callable[[], bool] | None = None
    client: socket.socket | None = None


class HungUpError(BadRequestError):
    """The client has hung up: its request was given up."""


class EndingError(UnavailableError):
    """This balancer is about to end: ask again."""


class Answer:
    """An answer whose body may still be under way. ``close`` it; read to its end, its connection is used again."""

    def __init__(self, backend: Backend, response: http.client.HTTPResponse, held: _Held) -> None:
        self.status, self.reason = response.status, response.reason
        self.headers: list[tuple[str, str]] = response.getheaders()
        self.length: int | None = response.length  # None: it ends when it ends
        self._backend, self._response, self._held = backend, response, held

    def read(self) -> bytes:
        """The whole body. Raises OutcomeUnknownError where it breaks off."""
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes]:
        """The body as it arrives. Raises OutcomeUnknownError where it breaks off; the connection is given back in any case.

        One without a length also ends where it is given up (see ``Patience.client``).
        """
        try:
            with _mapped(self._backend):
                yield from self._whole() if self.length is None else self._counted(self.length)
            self._response.close()
            self._held.give_back(reusable=not self._response.will_close)
        except (HungUpError, EndingError):
            if self.length is not None:
                raise
        finally:
            self.close()

    def _whole(self) -> Iterator[bytes]:
        while piece := self._response.read1(PIECE_BYTES):
            yield piece

    def _counted(self, left: int) -> Iterator[bytes]:
        while left > 0:
            piece = self._response.read1(min(left, PIECE_BYTES))
            if not piece:
                raise http.client.IncompleteRead(b"", left)
            left -= len(piece)
            yield piece

    def close(self) -> None:
        """Give up what was not read. May be called twice."""
        self._response.close()
        self._held.give_back(reusable=False)


@dataclass(frozen=True, slots=True)
class _Idle:
    sock: socket.socket
    since: float


class _Backlog:
    """The idle connections to one backend, and how many requests it has in hand."""

    def __init__(self) -> None:
        self.idle: deque[_Idle] = deque()
        self.in_flight = 0


class Connections:
    """Pooled connections by backend. Safe to share between threads."""

    def __init__(self, clock: Clock, *, connect_timeout_seconds: float, in_flight_max: int, idle_seconds_max: float = IDLE_SECONDS_MAX,
                 stopping: threading.Event | None = None) -> None:
        self._clock, self._stopping = clock, stopping or threading.Event()
        self._connect_timeout_seconds = connect_timeout_seconds
        self._in_flight_max = in_flight_max
        self._idle_seconds_max = idle_seconds_max
        self._lock = threading.Lock()
        self._backlogs: dict[str, _Backlog] = {}

    def exchange(self, backend: Backend, method: str, head: bytes, body: Body, patience: Patience) -> Answer:
        """Send a request once and return its answer, the body still unread.

        Args:
            head: request line and headers with the empty line at their end; sent as it is, together with a body of bytes.
            body: bytes, or pieces already framed as the head says. An error that their source raises is passed on, and the
                unfinished request is cut off, so that the backend does not carry it out.

        Raises:
            OverloadedError: the backend has too many requests of ours in hand. Nothing was sent.
            UnreachableError: no connection could be made. Nothing was sent.
            OutcomeUnknownError: the connection broke, the backend is lost, or no answer came in time; ``timed_out`` tells the last apart.
            HungUpError, EndingError: it was given up.
        """
        held = self._take(backend)
        try:
            held.sock.settimeout(patience.timeout_seconds)
            incoming = _Incoming(held.sock, lambda: self._await(held.sock, patience))
            response = http.client.HTTPResponse(incoming, method=method)  # type: ignore[arg-type] - of a socket it wants no more than makefile
            with _mapped(backend):
                _send(held.sock, head, body, response)
            if not isinstance(body, bytes) and not (method == "POST" and 200 <= response.status < 300):
                response.will_close = True  # of a long body that it may not have read, a backend closes its end in a moment
        except BaseException:
            held.give_back(reusable=False)
            raise
        return Answer(backend, response, held)

    def _await(self, sock: socket.socket, patience: Patience) -> None:
        """Until there is something to read. Raises _LostError, HungUpError, EndingError, TimeoutError.

        The client is looked at after a moment only: one that has closed its half of the connection still gets an answer that is there at once.
        """
        end = self._clock.monotonic() + patience.timeout_seconds
        poller = select.poll()
        poller.register(sock, select.POLLIN)
        if poller.poll(min(LOOK_SECONDS, patience.timeout_seconds) * 1_000):
            return
        if patience.client is not None:
            poller.register(patience.client, HUNG_UP)
        look_seconds = LOOK_SECONDS if patience.is_lost else STOP_LOOK_SECONDS if patience.client is not None else math.inf
        while True:
            if patience.is_lost is not None and patience.is_lost():
                raise _LostError
            if patience.client is not None and self._stopping.is_set():
                raise EndingError()
            left = end - self._clock.monotonic()
            if left <= 0:
                raise TimeoutError
            ready = [descriptor for descriptor, _ in poller.poll(min(left, look_seconds) * 1_000)]
            if sock.fileno() in ready:
                return
            if ready:
                raise HungUpError()

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            for backlog in self._backlogs.values():
                while backlog.idle:
                    backlog.idle.pop().sock.close()

    def _take(self, backend: Backend) -> _Held:
        with self._lock:
            backlog = self._backlogs.setdefault(backend.url, _Backlog())
            if backlog.in_flight >= self._in_flight_max:
                raise OverloadedError(f"{backend.component} has {backlog.in_flight} requests in hand and answers too slowly; nothing was sent",
                                      component=backend.component)
            backlog.in_flight += 1
        try:
            return _Held(self, backlog, self._idle_socket(backlog) or self._connect(backend))
        except BaseException:
            with self._lock:
                backlog.in_flight -= 1
            raise

    def _idle_socket(self, backlog: _Backlog) -> socket.socket | None:
        """The connection used last, if it is still good. One that the backend closed meanwhile is readable: it is thrown away."""
        while True:
            with self._lock:
                if not backlog.idle:
                    return None
                idle = backlog.idle.pop()
            if self._clock.monotonic() - idle.since <= self._idle_seconds_max and not _is_readable(idle.sock):
                return idle.sock
            idle.sock.close()

    def _connect(self, backend: Backend) -> socket.socket:
        parts = urlsplit(backend.url)
        try:
            sock = socket.create_connection((parts.hostname or "", parts.port or 80), timeout=self._connect_timeout_seconds)
        except OSError as error:
            raise UnreachableError(f"no connection to {backend.component}: {error.strerror or 'not in time'}",
                                   component=backend.component) from error
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def give_back(self, backlog: _Backlog, sock: socket.socket, *, reusable: bool) -> None:
        """End a request: its connection waits for the next one, or is closed."""
        with self._lock:
            backlog.in_flight -= 1
            if reusable:
                backlog.idle.append(_Idle(sock, self._clock.monotonic()))
        if not reusable:
            sock.close()


class _Held:
    """A connection in use, given back exactly once."""

    def __init__(self, connections: Connections, backlog: _Backlog, sock: socket.socket) -> None:
        self.sock = sock
        self._connections, self._backlog, self._in_use = connections, backlog, True

    def give_back(self, *, reusable: bool) -> None:
        if self._in_use:
            self._in_use = False
            self._connections.give_back(self._backlog, self.sock, reusable=reusable)


class _LostError(Exception):
    """The backend will not answer."""


def _is_readable(sock: socket.socket, wait_seconds: float = 0.0) -> bool:
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    return bool(poller.poll(wait_seconds * 1_000))


class _Incoming(io.RawIOBase):
    """What a backend sends, for the parser of answers: whatever that reads, it is waited for in one place."""

    def __init__(self, sock: socket.socket, wait: Callable[[], None]) -> None:
        super().__init__()
        self._sock, self._wait = sock, wait

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            try:
                return self._sock.recv_into(buffer)
            except BlockingIOError:
                self._wait()


def _send(sock: socket.socket, head: bytes, body: Body, response: http.client.HTTPResponse) -> None:
    """Write the request and read the head of the answer. A backend may answer, and close, before it has read all."""
    pieces, was_cut = iter((head + body,)) if isinstance(body, bytes) else _joined(head, body), False
    for piece in pieces:
        try:
            sock.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            was_cut = True
            break
    sock.setblocking(False)  # who reads waits by itself
    response.begin()
    if was_cut:
        response.will_close = True


def _joined(head: bytes, body: Iterable[bytes]) -> Iterator[bytes]:
    yield head
    yield from body


@contextlib.contextmanager
def _mapped(backend: Backend) -> Iterator[None]:
    try:
        yield
    except _LostError as error:
        raise OutcomeUnknownError(f"{backend.component} does not answer any more", component=backend.component) from error
    except TimeoutError as error:
        raise OutcomeUnknownError(f"no answer from {backend.component} in time", component=backend.component, timed_out=True) from error
    except (OSError, http.client.HTTPException) as error:
        raise OutcomeUnknownError(f"the connection to {backend.component} broke before its answer was whole",
                                  component=backend.component) from error
