"""A client's connection, on which every wait is bounded: for its request to arrive, and for its answer to be taken."""

from __future__ import annotations

import errno
import math
import select
import socket
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from ..clock import SystemClock
from ..errors import SlowRequestError
from . import arrival
from .limits import Limits

LOOK_MICROSECONDS = 500_000  # for which the kernel waits at a stretch: then there is a look at the clock, and whether the worker ends
HUNG_UP = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR
PIECE_BYTES = 16_384  # that the main loop takes in at once: a thread reads large bodies better
_clock = SystemClock()


class Owner(Protocol):
    """The worker of a connection."""

    limits: Limits
    ends_at: float  # when a worker that ends waits for no client any more; infinite before


class ClientSocket(socket.socket):
    """A socket as gunicorn uses it: ``recv`` and ``sendall`` of a thread, and ``gather`` of the main loop before there is a thread."""

    def __init__(self, accepted: socket.socket, owner: Owner) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", 0, LOOK_MICROSECONDS))
        self._owner = owner
        self._arrived = bytearray()  # and not asked for yet
        self.began_at, self._received_bytes = math.inf, 0
        self.answered_at = -math.inf  # its last request
        self.is_late = False  # its request did not come in time: what comes now belongs to nothing
        self._told_to_go_on = False

    # --- the main loop: never waits ---

    def gather(self) -> bool:
        """Take in what is there. False: the other side sends nothing any more."""
        try:
            piece = super().recv(PIECE_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._count(len(piece))
        self._arrived += piece
        return bool(piece)

    def put_back(self, data: bytes) -> None:
        """What a parser has read too much: the beginning of the next request."""
        self.began_at, self._received_bytes, self._told_to_go_on = math.inf, 0, False
        self._arrived[:0] = data
        self._count(len(self._arrived))

    @property
    def is_silent(self) -> bool:
        """Nothing of a request has come."""
        return not self._arrived

    @property
    def deadline(self) -> float:
        """When the request that has begun is given up; infinite where none has."""
        return arrival.deadline(self._owner.limits, began=self.began_at, received_bytes=self._received_bytes)

    def is_ready(self, *, body_bytes_max: int) -> bool:
        """Whether a thread should take over. Tells a sender that waits for it to go on with its body."""
        if not self._arrived or arrival.has_arrived(self._arrived, body_bytes_max=body_bytes_max):
            return bool(self._arrived)
        if not self._told_to_go_on and arrival.asks_to_go_on(self._arrived):
            self._told_to_go_on = True
            try:
                self.send(b"HTTP/1.1 100 Continue\r\n\r\n", socket.MSG_DONTWAIT)
            except OSError:
                return True  # its thread meets the end
        return False

    def discard(self) -> bool:
        """Throw away what has come. False: the other side has closed, too."""
        try:
            return bool(super().recv(PIECE_BYTES, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True
        except OSError:
            return False

    # --- a thread ---

    def recv(self, size: int, flags: int = 0) -> bytes:
        """As a socket's, and not beyond the time for the request.

        Raises:
            SlowRequestError: it is over. The connection is of no more use.
        """
        if self._arrived:
            piece = bytes(memoryview(self._arrived)[:size])
            del self._arrived[:size]
            return piece
        while True:
            try:
                piece = super().recv(size, flags)
            except BlockingIOError:
                if self.gettimeout() == 0:
                    raise
            else:
                self._count(len(piece))
                return piece
            self._be_in_time()

    def fill(self, target: memoryview) -> int:
        """Receive so much that it is full, in time as ``recv``; the bytes that are missing where the other side sends nothing any more.

        Raises:
            SlowRequestError: as ``recv``.
        """
        if self._arrived:
            piece = self._arrived[:len(target)]
            del self._arrived[:len(piece)]
            target[:len(piece)] = piece
            target = target[len(piece):]
        while target:
            try:
                size = self.recv_into(target, 0, socket.MSG_WAITALL)
            except BlockingIOError:
                if self.gettimeout() == 0:
                    raise
            else:
                if not size:
                    return len(target)
                self._count(size)
                target = target[size:]
            if target:
                self._be_in_time()
        return 0

    def _be_in_time(self) -> None:
        if _clock.monotonic() >= min(self.deadline, self._owner.ends_at):
            self.is_late = True
            raise SlowRequestError()

    def becomes_ready(self, seconds: float, *, body_bytes_max: int) -> bool:
        """As ``is_ready``, and wait a moment for it."""
        until, poller = _clock.monotonic() + seconds, select.poll()
        poller.register(self, select.POLLIN)
        while not self.is_ready(body_bytes_max=body_bytes_max):
            left = until - _clock.monotonic()
            if left <= 0 or not poller.poll(left * 1_000) or not self.gather():
                return False
        return True

    def sendall(self, data: Any, flags: int = 0) -> None:
        """As a socket's. A reader that takes nothing for too long counts as gone: BrokenPipeError."""
        if self.gettimeout() == 0:
            super().sendall(data, flags)
            return
        left, taken_at = memoryview(data).cast("B"), _clock.monotonic()
        while left:
            try:
                left = left[self.send(left, flags):]
            except BlockingIOError:
                if _clock.monotonic() >= min(taken_at + self._owner.limits.stalled_seconds, self._owner.ends_at):
                    raise BrokenPipeError(errno.EPIPE, "the client does not take its answer") from None
            else:
                taken_at = _clock.monotonic()

    def _count(self, size: int) -> None:
        if size:
            self.began_at = min(self.began_at, _clock.monotonic())
            self._received_bytes += size


def hung_up_by(environ: Mapping[str, Any]) -> Callable[[], bool]:
    """Tells whether a request's client has closed the connection, or its half of it: then it does not wait for an answer that takes its time."""
    sock = environ.get("gunicorn.socket")
    return (lambda: False) if sock is None else partial(_is_hung_up, sock)


def _is_hung_up(sock: socket.socket) -> bool:
    poller = select.poll()
    poller.register(sock, HUNG_UP)
    return bool(poller.poll(0))
