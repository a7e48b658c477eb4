"""HTTP by hand over one socket, for what a client library would not send."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Mapping
from dataclasses import dataclass

TIMEOUT_SECONDS = 15.0


@dataclass(frozen=True)
class RawAnswer:
    status: int
    headers: Mapping[str, str]
    body: bytes
    will_close: bool


class RawConnection:
    """One connection: bytes out, answers in."""

    def __init__(self, port: int, *, host: str = "127.0.0.1") -> None:
        self.sock = socket.create_connection((host, port), timeout=TIMEOUT_SECONDS)

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *exc: object) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def begin(self, method: str = "GET") -> http.client.HTTPResponse:
        """Read the head of an answer."""
        response = http.client.HTTPResponse(self.sock, method=method)
        response.begin()
        return response

    def answer(self, method: str = "GET") -> RawAnswer:
        """Read one answer to its end."""
        response = self.begin(method)
        return RawAnswer(response.status, response.headers, response.read(), response.will_close)

    def rest(self) -> bytes:
        """Everything that comes until the other side ends the connection, however it does."""
        data = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := self.sock.recv(65_536):
                data += piece
        return data

    def ask(self, target: str, *, method: str = "GET", headers: Mapping[str, str] = {}, body: bytes = b"") -> RawAnswer:
        """Send one request, its target exactly as given, and read the answer."""
        lines = [f"{method} {target} HTTP/1.1", "Host: test", *(f"{name}: {value}" for name, value in headers.items())]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        self.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
        return self.answer(method)
