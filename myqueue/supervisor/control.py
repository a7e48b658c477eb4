"""How a supervisor is spoken to: one JSON object a line over loopback, with a token only the folder's owner can read."""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import selectors
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..clock import Clock
from ..errors import ConfigurationError, MyQueueError, UnavailableError
from .folder import DataFolder, write_secret
from .spec import HOST

LINE_BYTES_MAX = 65_536
CONNECTIONS_MAX = 32
IDLE_SECONDS_MAX = 10.0
TIMEOUT_SECONDS = 10.0
ANSWER_BYTES_MAX = 2**20


def ask(folder: DataFolder, command: str, **arguments: Any) -> dict[str, Any]:
    """Send one command to the supervisor of a folder; its answer.

    Raises:
        UnavailableError: there is none, or it did not answer in time.
        ConfigurationError: it refused; says why.
    """
    try:
        reach = json.loads(folder.control_file.read_text())
        with socket.create_connection((HOST, reach["port"]), TIMEOUT_SECONDS) as connection:
            connection.sendall(json.dumps({"token": reach["token"], "command": command, **arguments}).encode() + b"\n")
            with connection.makefile("rb") as lines:
                answer = json.loads(lines.readline(ANSWER_BYTES_MAX))
    except (OSError, ValueError, KeyError) as error:
        raise UnavailableError(f"the supervisor of {folder.path} does not answer: {error}") from None
    if "error" in answer:
        raise ConfigurationError(answer["error"])
    return answer


@dataclass
class _Caller:
    connection: socket.socket
    since: float
    received: bytearray = field(default_factory=bytearray)


class ControlServer:
    """Answers commands from within the supervisor's own loop: no thread, nothing that blocks.

    Args:
        answer: what a command leads to; a MyQueueError it raises is the caller's answer.
    """

    def __init__(self, selector: selectors.BaseSelector, clock: Clock, answer: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
        self._selector, self._clock, self._answer = selector, clock, answer
        self._token = secrets.token_urlsafe(32)
        self._callers: dict[socket.socket, _Caller] = {}
        self._listener = socket.create_server((HOST, 0))
        self._listener.setblocking(False)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def announce(self, folder: DataFolder) -> None:
        """Say in the folder how we are reached."""
        write_secret(folder.control_file, json.dumps({"port": self._listener.getsockname()[1], "token": self._token, "pid": os.getpid()}))

    def drop_idle(self) -> None:
        """Hang up on whoever connected and says nothing."""
        now = self._clock.monotonic()
        for caller in list(self._callers.values()):
            if now - caller.since > IDLE_SECONDS_MAX:
                self._hang_up(caller)

    def close(self) -> None:
        for caller in list(self._callers.values()):
            self._hang_up(caller)
        self._selector.unregister(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            connection, _ = self._listener.accept()
            if len(self._callers) >= CONNECTIONS_MAX:
                connection.close()
                return
            connection.setblocking(False)
            caller = _Caller(connection, self._clock.monotonic())
            self._callers[connection] = caller
            self._selector.register(connection, selectors.EVENT_READ, lambda: self._read(caller))

    def _read(self, caller: _Caller) -> None:
        try:
            piece = caller.connection.recv(LINE_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        caller.received += piece
        if b"\n" in caller.received:
            line = bytes(caller.received).partition(b"\n")[0]
            answer = json.dumps(self._handle(line)).encode() + b"\n"
            caller.connection.settimeout(1.0)  # an answer fits the socket's buffer, unless the caller is hostile
            with contextlib.suppress(OSError):
                caller.connection.sendall(answer)
            self._hang_up(caller)
        elif not piece or len(caller.received) > LINE_BYTES_MAX:
            self._hang_up(caller)

    def _handle(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            if not isinstance(request, dict) or not hmac.compare_digest(str(request.get("token")).encode(), self._token.encode()):
                return {"error": "the token is wrong"}
            return self._answer(request)
        except ValueError:
            return {"error": "a command is one JSON object on one line"}
        except MyQueueError as error:
            return {"error": error.message}

    def _hang_up(self, caller: _Caller) -> None:
        del self._callers[caller.connection]
        self._selector.unregister(caller.connection)
        caller.connection.close()
