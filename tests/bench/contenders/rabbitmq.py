"""RabbitMQ with a quorum queue of one member: publisher confirms come after its log was synced.

Twice: AMQP 0-9-1 by hand, as little of it as is needed, so that the client costs next to nothing, and by pika, as Python programs use it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByClient, ConnectionClosedByClient

from db.local_postgres import free_port
from tests.bench.processes import program, start_server

from .base import CALL_SECONDS, HOST, Contender
from .wire import Wire

PREFETCH = 1_000  # messages under way to a reader; so many it acknowledges together
FRAME_BYTES_MAX = 131_072
METHOD, HEAD, BODY, BEAT = 1, 2, 3, 8  # kinds of frames
PREFIX = "pika-"  # of queues: the other contender has its own on the same server
QUEUE_ARGUMENTS = {"x-queue-type": "quorum"}
PERSISTENT = struct.pack(">HB", 0x1000, 2)  # of a message's properties only its delivery mode
PIKA_PERSISTENT = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)
# The scripts of the package drop to an account of their own; these here run it as whoever we are.
PROGRAMS = ("/usr/lib/rabbitmq/bin/rabbitmq-server", "/usr/local/lib/rabbitmq/bin/rabbitmq-server")


class RabbitMq(Contender):
    name = "RabbitMQ quorum"
    messages_max = 50_000
    reads_once = True

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.port, names = free_port(), free_port()
        server, mapper = program(*PROGRAMS), program("epmd")
        folder.mkdir(parents=True)
        (folder / "enabled_plugins").write_text("[].\n")
        (folder / "rabbitmq.conf").write_text(f"listeners.tcp.default = {HOST}:{self.port}\nloopback_users = none\n")
        shared = {**os.environ, "HOME": str(folder), "ERL_EPMD_PORT": str(names), "ERL_EPMD_ADDRESS": HOST}
        # Its own: the one that Erlang starts by itself would stay behind.
        start_server("epmd", [mapper, "-port", str(names), "-address", HOST], folder=folder / "epmd", port=names, environment=shared, stack=stack)
        environment = {**shared, "RABBITMQ_NODENAME": f"bench{self.port}@localhost", "RABBITMQ_DIST_PORT": str(free_port()),
                       "RABBITMQ_MNESIA_BASE": str(folder / "data"), "RABBITMQ_LOG_BASE": str(folder / "logs"), "RABBITMQ_LOGS": "-",
                       "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"), "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
                       "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}"}
        self.roots = {"server": [start_server("rabbitmq-server", [server], folder=folder, port=self.port, environment=environment, stack=stack)]}

    def others(self) -> Sequence[Contender]:
        return [Pika(self)]

    def create(self, log: str) -> None:
        with ExitStack() as stack:
            _Channel(self.port, stack).call(50, 10, struct.pack(">H", 0) + short(log) + b"\x02" + table(QUEUE_ARGUMENTS))  # queue.declare, durable

    def producing(self, log: str, value: bytes, count: int, batch: int, stack: ExitStack) -> Callable[[], None]:
        channel = _Channel(self.port, stack)
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
        channel = _Channel(self.port, stack)
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
        channel, sent = _Channel(self.port, stack), 0
        channel.confirm()

        def call(value: bytes) -> None:
            nonlocal sent
            sent += 1
            channel.wire.send(publication(log, value))
            channel.await_confirmed(sent)

        return call


class Pika(Contender):
    """The same server, with the client that RabbitMQ's own tutorials use."""

    name = "RabbitMQ quorum, pika"
    messages_max = RabbitMq.messages_max
    reads_once = True

    def __init__(self, server: RabbitMq) -> None:
        self._server, self.roots = server, server.roots

    def create(self, log: str) -> None:
        self._server.create(PREFIX + log)

    def producing(self, log: str, value: bytes, count: int, batch: int, stack: ExitStack) -> Callable[[], None]:
        publisher, queue = _Publisher(self._server.port, stack), PREFIX + log

        def work() -> None:
            for first in range(0, count, batch):
                publisher.publish(queue, value, min(batch, count - first))

        return work

    def consuming(self, log: str, stack: ExitStack) -> Callable[[int], int]:
        channel, queue = self._channel(stack), PREFIX + log
        channel.basic_qos(prefetch_count=PREFETCH * 2)

        def work(count: int) -> int:
            messages = channel.consume(queue, inactivity_timeout=CALL_SECONDS)
            for seen, (method, _properties, _body) in enumerate(itertools.islice(messages, count), 1):
                if method is None:  # nothing came in time
                    return seen - 1
                if not seen % PREFETCH or seen == count:
                    channel.basic_ack(method.delivery_tag, multiple=True)
            return count

        return work

    def caller(self, log: str, stack: ExitStack) -> Callable[[bytes], None]:
        channel, queue = self._channel(stack), PREFIX + log
        channel.confirm_delivery()  # from now on publishing returns when the message is confirmed
        return lambda value: channel.basic_publish("", queue, value, PIKA_PERSISTENT)

    def _channel(self, stack: ExitStack) -> BlockingChannel:
        return stack.enter_context(pika.BlockingConnection(parameters(self._server.port))).channel()


class _Publisher:
    """Many messages under way, as pika's callbacks allow; its blocking channel waits for each message alone. Whatever closes it is raised."""

    def __init__(self, port: int, stack: ExitStack) -> None:
        self._sent, self._confirms, self._error = 0, Confirms(), None
        self._connection = pika.SelectConnection(parameters(port), self._connected, self._end, self._end)
        self._loop = self._connection.ioloop
        stack.callback(self._close)
        self._run()

    def publish(self, queue: str, value: bytes, count: int) -> None:
        """The message so many times; when this returns, all are confirmed."""
        for _ in range(count):
            self._channel.basic_publish("", queue, value, PIKA_PERSISTENT)
        self._sent += count
        self._run()

    def _run(self) -> None:
        """Until a callback stops the loop."""
        limit = self._loop.call_later(CALL_SECONDS, partial(self._end, None, TimeoutError("no answer of RabbitMQ in time")))
        self._loop.start()
        self._loop.remove_timeout(limit)
        if self._error:
            raise self._error

    def _connected(self, connection: pika.SelectConnection) -> None:
        self._channel = connection.channel(on_open_callback=self._opened)

    def _opened(self, channel: pika.channel.Channel) -> None:
        channel.add_on_close_callback(self._end)
        channel.confirm_delivery(self._confirm, callback=lambda _ok: self._loop.stop())

    def _confirm(self, frame: pika.frame.Method) -> None:
        method = frame.method
        if isinstance(method, pika.spec.Basic.Nack):
            self._end(None, AssertionError(f"refused: {method}"))
        self._confirms.add(method.delivery_tag, multiple=method.multiple)
        if self._confirms.last == self._sent:
            self._loop.stop()

    def _end(self, _what: Any, error: BaseException) -> None:
        if not isinstance(error, ChannelClosedByClient):  # which comes before the connection's own end
            self._error = error
            self._loop.stop()

    def _close(self) -> None:
        with contextlib.closing(self._loop), contextlib.suppress(ConnectionClosedByClient):
            if self._connection.is_open:
                self._connection.close()
                self._run()


def parameters(port: int) -> pika.ConnectionParameters:
    """Limits for every wait. The blocking channel's for a confirm has none of its own: there a server that hangs is found by its heartbeats."""
    return pika.ConnectionParameters(HOST, port, socket_timeout=CALL_SECONDS, stack_timeout=CALL_SECONDS, blocked_connection_timeout=CALL_SECONDS,
                                     heartbeat=int(CALL_SECONDS))


class Confirms:
    """Messages are confirmed one by one in any order, or all up to a number; ``last`` is that up to which every one is."""

    def __init__(self) -> None:
        self.last, self._singly = 0, set[int]()

    def add(self, number: int, *, multiple: bool) -> None:
        if multiple:
            self.last = max(self.last, number)
            self._singly = {one for one in self._singly if one > number}
        else:
            self._singly.add(number)
        while self.last + 1 in self._singly:
            self.last += 1
            self._singly.remove(self.last)


class _Channel:
    """A connection with one channel. Whatever closes it is an AssertionError with the server's reason."""

    def __init__(self, port: int, stack: ExitStack) -> None:
        self.wire = Wire(port, stack)
        self._confirms = Confirms()
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
        while self._confirms.last < tag:
            number, multiple = struct.unpack(">Q?", self._await(60, 80)[:9])
            self._confirms.add(number, multiple=multiple)

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
