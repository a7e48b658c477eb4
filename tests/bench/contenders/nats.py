"""NATS JetStream with file storage. From 2.10 on it can sync before it acknowledges; before, it syncs now and then."""

from __future__ import annotations

import itertools
import json
import re
import secrets
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from db.local_postgres import free_port
from tests.bench.processes import program, start_server

from .base import CALL_SECONDS, HOST, Contender
from .wire import Wire

READ_MESSAGES = 1_000
SYNCS = (2, 10)  # the first version with sync_interval: always
CONFIG = 'host: {host}\nport: {port}\njetstream {{ store_dir: "{folder}"{sync} }}\n'


class Nats(Contender):
    name = "NATS JetStream"
    messages_max = 20_000

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._port, binary = free_port(), program("nats-server")
        syncs = _version(binary) >= SYNCS
        self.acknowledged = "fsync, one a message" if syncs else "page cache (this version syncs every 2 min)"
        folder.mkdir(parents=True)
        config = folder / "nats.conf"
        config.write_text(CONFIG.format(host=HOST, port=self._port, folder=folder, sync=", sync_interval: always" if syncs else ""))
        self.roots = {"server": [start_server("nats-server", [binary, "-c", str(config)], folder=folder, port=self._port, stack=stack)]}

    def create(self, log: str) -> None:
        with ExitStack() as stack:
            client = _Client(self._port, stack)
            client.request(f"$JS.API.STREAM.CREATE.{log}", {"name": log, "subjects": [f"in.{log}"], "storage": "file", "num_replicas": 1})

    def producing(self, log: str, value: bytes, count: int, batch: int, stack: ExitStack) -> Callable[[], None]:
        client = _Client(self._port, stack)
        one = client.publication(f"in.{log}", value)

        def work() -> None:
            for first in range(0, count, batch):
                size = min(batch, count - first)
                client.wire.send(one * size)
                for _ in range(size):
                    client.answer()

        return work

    def consuming(self, log: str, stack: ExitStack) -> Callable[[int], int]:
        client, name = _Client(self._port, stack), f"c{secrets.token_hex(4)}"
        client.request(f"$JS.API.CONSUMER.DURABLE.CREATE.{log}.{name}",
                       {"stream_name": log, "config": {"durable_name": name, "ack_policy": "none", "deliver_policy": "all"}})
        ask = client.publication(f"$JS.API.CONSUMER.MSG.NEXT.{log}.{name}", json.dumps({"batch": READ_MESSAGES, "expires": 5_000_000_000}).encode())

        def work(count: int) -> int:
            seen = 0
            while seen < count:
                client.wire.send(ask)
                for _ in range(min(READ_MESSAGES, count - seen)):
                    client.message()
                    seen += 1
            return seen

        return work

    def caller(self, log: str, stack: ExitStack) -> Callable[[bytes], None]:
        client = _Client(self._port, stack)

        def call(value: bytes) -> None:
            client.wire.send(client.publication(f"in.{log}", value))
            client.answer()

        return call


class _Client:
    """One connection with an inbox for answers. A status in place of a message (nothing came in time) is an AssertionError."""

    _numbers = itertools.count()

    def __init__(self, port: int, stack: ExitStack) -> None:
        self.wire = Wire(port, stack)
        self.wire.line()  # INFO
        self._inbox = f"_INBOX.{next(self._numbers)}.{secrets.token_hex(4)}"
        self.wire.send(b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"lang":"python","version":"0"}\r\n'
                       + f"SUB {self._inbox} 1\r\nPING\r\n".encode())
        while self.wire.line() != b"PONG":
            pass

    def publication(self, subject: str, value: bytes) -> bytes:
        return b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), self._inbox.encode(), len(value), value)

    def message(self) -> bytes:
        """The next message's body."""
        while True:
            line = self.wire.line()
            word = line[:4]
            if word == b"MSG ":
                return self.wire.exactly(int(line.rpartition(b" ")[2]) + 2)[:-2]
            if word == b"PING":
                self.wire.send(b"PONG\r\n")
            elif word != b"PONG":
                raise AssertionError(line.decode(errors="replace"))

    def answer(self) -> dict[str, Any]:
        """The next answer of JetStream. Raises AssertionError for an error."""
        body = self.message()
        assert b'"error"' not in body, body.decode(errors="replace")
        return json.loads(body)

    def request(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        self.wire.send(self.publication(subject, json.dumps(body).encode()))
        return self.answer()


def _version(binary: str) -> tuple[int, ...]:
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=CALL_SECONDS, check=True).stdout
    found = re.search(r"v(\d+)\.(\d+)", said)
    return tuple(map(int, found.groups())) if found else (0, 0)
