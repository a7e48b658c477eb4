"""One connection to a peer: lines and exact counts of bytes, with a limit on every wait."""

from __future__ import annotations

import socket
from contextlib import ExitStack

from .base import CALL_SECONDS, HOST

READ_BYTES = 1 << 16


class Wire:
    """A TCP connection. Raises OSError (TimeoutError among them) where it breaks, AssertionError where the peer ends it."""

    def __init__(self, port: int, stack: ExitStack) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=CALL_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb", READ_BYTES)
        stack.callback(self._socket.close)
        stack.callback(self._file.close)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def line(self) -> bytes:
        """The next line, without its CR and LF."""
        line = self._file.readline()
        assert line.endswith(b"\r\n"), "the peer ended the connection"
        return line[:-2]

    def exactly(self, size: int) -> bytes:
        data = self._file.read(size)
        assert len(data) == size, "the peer ended the connection"
        return data
