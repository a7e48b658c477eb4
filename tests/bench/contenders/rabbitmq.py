"""RabbitMQ with a quorum queue of one member: publisher confirms come after its log was synced. AMQP 0-9-1, as little of it as is needed."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from db.local_postgres import free_port
from tests.bench.processes import program, start_server

from .base import HOST, Contender
from .wire import Wire

PREFETCH = 1_000  # messages under way to a reader; so many it acknowledges together
FRAME_BYTES_MAX = 131_072
METHOD, HEAD, BODY, BEAT = 1, 2, 3, 8  # kinds of frames
QUEUE_ARGUMENTS = {"x-queue-type": "quorum"}
PERSISTENT = struct.pack(">HB", 0x1000, 2)  # of a message's properties only its delivery mode
# The scripts of the package drop to an account of their own; these here run it as whoever we are.
PROGRAMS = ("/usr/lib/rabbitmq/bin/rabbitmq-server", "/usr/local/lib/rabbitmq/bin/rabbitmq-server")


class RabbitMq(Contender):
    name = "RabbitMQ quorum"
    messages_max = 50_000
    reads_once = True

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._port, names = free_port(), free_port()
        server, mapper = program(*PROGRAMS), program("epmd")
        folder.mkdir(parents=True)
        (folder / "enabled_plugins").write_text("[].\n")
        (folder / "rabbitmq.conf").write_text(f"listeners.tcp.default = {HOST}:{self._port}\nloopback_users = none\n")
        shared = {**os.environ, "HOME": str(folder), "ERL_EPMD_PORT": str(names), "ERL_EPMD_ADDRESS": HOST}
        # Its own: the one that Erlang starts by itself would stay behind.
        start_server("epmd", [mapper, "-port", str(names), "-address", HOST], folder=folder / "epmd", port=names, environment=shared, stack=stack)
        environment = {**shared, "RABBITMQ_NODENAME": f"bench{self._port}@localhost", "RABBITMQ_DIST_PORT": str(free_port()),
                       "RABBITMQ_MNESIA_BASE": str(folder / "data"), "RABBITMQ_LOG_BASE": str(folder / "logs"), "RABBITMQ_LOGS": "-",
                       "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"), "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
                       "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}"}
        self.roots = {"server": [start_server("rabbitmq-server", [server], folder=folder, port=self._port, environment=environment, stack=stack)]}

    def create(self, log: str) -> None:
        with ExitStack() as stack:
            _Channel(self._port, stack).call(50, 10, struct.pack(">H", 0) + short(log) + b"\x02" + table(QUEUE_ARGUMENTS))  # queue.declare, durable

    def producing(self, log: str, value: bytes, count: int, batch: int, stack: ExitStack) -> Callable[[], None]:
        channel = _Channel(self._port, stack)
        channel.confirm()
        one = publication(log, value)

        def work() -> None:
            sent = 0
            while sent < count:
                size = min(batch, count - sent)
                channel.wire.send(one * size)
                sent += size
                channel.await_confirmed(sent)

        return work

    def consuming(self, log: str, stack: ExitStack) -> Callable[[int], int]:
        channel = _Channel(self._port, stack)
        channel.call(60, 10, struct.pack(">IHB", 0, PREFETCH * 2, 0))  # basic.qos
        consume = struct.pack(">H", 0) + short(log) + short("") + b"\x00" + table({})

        def work(count: int) -> int:
            channel.call(60, 20, consume)
            for seen in range(1, count + 1):
                tag = channel.delivery()
                if not seen % PREFETCH or seen == count:
                    channel.wire.send(frame(METHOD, struct.pack(">HHQB", 60, 80, tag, 1)))  # basic.ack of all so far
            return count

        return work

    def caller(self, log: str, stack: ExitStack) -> Callable[[bytes], None]:
        channel, sent = _Channel(self._port, stack), 0
        channel.confirm()

        def call(value: bytes) -> None:
            nonlocal sent
            sent += 1
            channel.wire.send(publication(log, value))
            channel.await_confirmed(sent)

        return call


class _Channel:
    """A connection with one channel. Whatever closes it is an AssertionError with the server's reason."""

    def __init__(self, port: int, stack: ExitStack) -> None:
        self.wire = Wire(port, stack)
        self._confirmed, self._singly = 0, set[int]()
        self.wire.send(b"AMQP\x00\x00\x09\x01")
        self._await(10, 10)  # connection.start
        login = long(b"\x00guest\x00guest")
        self._send(10, 11, table({}) + short("PLAIN") + login + short("en_US"), channel=0)
        self._await(10, 30)
        self._send(10, 31, struct.pack(">HIH", 1, FRAME_BYTES_MAX, 0), channel=0)  # no heartbeats: every wait has its own limit
        self._send(10, 40, short("/") + b"\x00\x00", channel=0)
        self._await(10, 41)
        self.call(20, 10, b"\x00")  # channel.open

    def call(self, class_id: int, method_id: int, arguments: bytes) -> bytes:
        """A method, and the arguments of its ``-ok``, whose number is the next one."""
        self._send(class_id, method_id, arguments, channel=1)
        return self._await(class_id, method_id + 1)

    def confirm(self) -> None:
        self.call(85, 10, b"\x00")

    def await_confirmed(self, tag: int) -> None:
        """Until every message up to this number is confirmed."""
        while self._confirmed < tag:
            arguments = self._await(60, 80)
            number, multiple = struct.unpack(">QB", arguments[:9])
            if multiple:
                self._confirmed = max(self._confirmed, number)
                self._singly = {one for one in self._singly if one > number}
            else:
                self._singly.add(number)
            while self._confirmed + 1 in self._singly:
                self._confirmed += 1
                self._singly.remove(self._confirmed)

    def delivery(self) -> int:
        """The next message's delivery tag; its body has been read."""
        arguments = self._await(60, 60)
        tag = struct.unpack_from(">Q", arguments, 1 + arguments[0])[0]
        kind, payload = self._frame()
        assert kind == HEAD, "a message has a head"
        left = struct.unpack_from(">Q", payload, 4)[0]
        while left:
            kind, payload = self._frame()
            assert kind == BODY, "a message has a body"
            left -= len(payload)
        return tag

    def _send(self, class_id: int, method_id: int, arguments: bytes, *, channel: int) -> None:
        self.wire.send(frame(METHOD, struct.pack(">HH", class_id, method_id) + arguments, channel=channel))

    def _await(self, class_id: int, method_id: int) -> bytes:
        while True:
            kind, payload = self._frame()
            if kind == BEAT:
                continue
            found = struct.unpack_from(">HH", payload)
            assert (kind, found) == (METHOD, (class_id, method_id)), f"wanted {class_id}.{method_id}, got {found}: {payload[4:200]!r}"
            return payload[4:]

    def _frame(self) -> tuple[int, bytes]:
        kind, _channel, size = struct.unpack(">BHI", self.wire.exactly(7))
        return kind, self.wire.exactly(size + 1)[:-1]


def frame(kind: int, payload: bytes, *, channel: int = 1) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def publication(queue: str, value: bytes) -> bytes:
    """A persistent message to a queue by its name: method, head and body. Its value fits into one frame."""
    return (frame(METHOD, struct.pack(">HHH", 60, 40, 0) + short("") + short(queue) + b"\x00")
            + frame(HEAD, struct.pack(">HHQ", 60, 0, len(value)) + PERSISTENT) + frame(BODY, value))


def short(text: str) -> bytes:
    raw = text.encode()
    return bytes([len(raw)]) + raw


def long(raw: bytes) -> bytes:
    return struct.pack(">I", len(raw)) + raw


def table(fields: dict[str, str]) -> bytes:
    return long(b"".join(short(name) + b"S" + long(value.encode()) for name, value in fields.items()))
