"""Redis Streams: XADD in pipelines; the append-only file is synced before any answer (``appendfsync always``).

Twice: with commands that are encoded beforehand, so that the client costs next to nothing, and by redis-py, as Python programs use it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import redis

from db.local_postgres import free_port
from tests.bench.processes import program, start_server

from .base import CALL_SECONDS, HOST, Contender
from .wire import Wire

READ_MESSAGES = 1_000
PREFIX = "redis-py-"  # of streams: the other contender has its own on the same server

Read = Callable[[bytes], Any]  # what XREAD answers behind an id


class Streams(Contender):
    """Whatever the client is."""

    messages_max = 200_000

    def create(self, log: str) -> None:
        """A stream is made by its first message."""

    def consuming(self, log: str, stack: ExitStack) -> Callable[[int], int]:
        read = self._reader(log, stack)

        def work(count: int) -> int:
            seen, last = 0, b"0"
            while seen < count:
                answer = read(last)
                if not answer:
                    break
                messages = answer[0][1]
                seen, last = seen + len(messages), messages[-1][0]
            return seen

        return work

    @abstractmethod
    def _reader(self, log: str, stack: ExitStack) -> Read: ...


class Redis(Streams):
    name = "Redis Streams, encoded beforehand"

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.port = free_port()
        command = [program("redis-server"), "--port", str(self.port), "--bind", HOST, "--dir", str(folder), "--save", "",
                   "--appendonly", "yes", "--appendfsync", "always", "--daemonize", "no"]
        self.roots = {"server": [start_server("redis-server", command, folder=folder, port=self.port, stack=stack)]}

    def others(self) -> Sequence[Contender]:
        return [RedisPy(self)]

    def producing(self, log: str, value: bytes, count: int, batch: int, stack: ExitStack) -> Callable[[], None]:
        wire, one = Wire(self.port, stack), command("XADD", log, "*", "v", value)

        def work() -> None:
            for first in range(0, count, batch):
                size = min(batch, count - first)
                wire.send(one * size)
                for _ in range(size):
                    reply(wire)

        return work

    def _reader(self, log: str, stack: ExitStack) -> Read:
        wire = Wire(self.port, stack)

        def read(last: bytes) -> Any:
            wire.send(command("XREAD", "COUNT", str(READ_MESSAGES), "STREAMS", log, last))
            return reply(wire)

        return read

    def caller(self, log: str, stack: ExitStack) -> Callable[[bytes], None]:
        wire = Wire(self.port, stack)

        def call(value: bytes) -> None:
            wire.send(command("XADD", log, "*", "v", value))
            reply(wire)

        return call


class RedisPy(Streams):
    """The same server, with the client of its makers."""

    name = "Redis Streams, redis-py"

    def __init__(self, server: Redis) -> None:
        self._port, self.roots = server.port, server.roots

    def producing(self, log: str, value: bytes, count: int, batch: int, stack: ExitStack) -> Callable[[], None]:
        client, stream = self._client(stack), PREFIX + log

        def work() -> None:
            for first in range(0, count, batch):
                pipeline = client.pipeline(transaction=False)
                for _ in range(min(batch, count - first)):
                    pipeline.xadd(stream, {"v": value})
                pipeline.execute()

        return work

    def _reader(self, log: str, stack: ExitStack) -> Read:
        client, stream = self._client(stack), PREFIX + log
        return lambda last: client.xread({stream: last}, count=READ_MESSAGES)

    def caller(self, log: str, stack: ExitStack) -> Callable[[bytes], None]:
        client, stream = self._client(stack), PREFIX + log

        def call(value: bytes) -> None:
            client.xadd(stream, {"v": value})

        return call

    def _client(self, stack: ExitStack) -> redis.Redis:
        client = redis.Redis(HOST, self._port, socket_timeout=CALL_SECONDS, protocol=2)
        stack.callback(client.close)
        return client


def command(*words: str | bytes) -> bytes:
    """A command in RESP: an array of strings with their lengths."""
    parts = [word.encode() if isinstance(word, str) else word for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


def reply(wire: Wire) -> Any:
    """One answer: bytes, int, list or None. Raises AssertionError for an error."""
    line = wire.line()
    kind, rest = line[:1], line[1:]
    assert kind != b"-", rest.decode(errors="replace")
    if kind == b"$":
        return None if rest == b"-1" else wire.exactly(int(rest) + 2)[:-2]
    if kind == b"*":
        return None if rest == b"-1" else [reply(wire) for _ in range(int(rest))]
    return int(rest) if kind == b":" else rest
