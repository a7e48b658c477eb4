"""A small real HTTP server on loopback that records, byte for byte, what it gets: a backend for a balancer's tests."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Received:
    """A request as it came over the wire."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes = b""
    pieces: list[tuple[float, bytes]] = field(default_factory=list)  # monotonic time of arrival and chunk, of a chunked body
    port: int = 0  # of the peer: which connection

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


@dataclass
class Reply:
    """What to answer. A body of pieces is sent chunked. ``drop`` closes the connection without an answer; ``cut`` after the body."""

    status: int = 200
    body: bytes | Iterable[bytes] = b"{}"
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)
    drop: bool = False
    cut: bool = False
    length: int | None = None  # claimed, where it is not the body's


def as_json(value: Any, status: int = 200) -> Reply:
    return Reply(status, json.dumps(value).encode())


class Upstream:
    """Serves until it is stopped. ``answer`` may be replaced at any time."""

    def __init__(self, answer: Callable[[Received], Reply] | None = None, *, port: int = 0) -> None:
        self.answer = answer or (lambda received: Reply())
        self.received: list[Received] = []
        self.polls: list[Received] = []  # of /readyz and /v1/cluster: kept apart, they come by themselves
        self._open: set[socket.socket] = set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                outer._open.add(self.connection)

            def finish(self) -> None:
                outer._open.discard(self.connection)
                super().finish()

            def log_message(self, format: str, *args: object) -> None:
                """Tests read what was received, not a log."""

            def __getattr__(self, name: str) -> Callable[[], None]:
                if name.startswith("do_"):
                    return self._serve
                raise AttributeError(name)

            def _serve(self) -> None:
                received = Received(self.command, self.raw_requestline.split(b" ")[1].decode("latin-1"), self.headers.items(),
                                    port=self.client_address[1])
                log = outer.polls if received.path in ("/readyz", "/v1/cluster") else outer.received
                log.append(received)
                self._read_body(received)
                self._write(outer.answer(received))

            def _read_body(self, received: Received) -> None:
                if received.header("Transfer-Encoding") == "chunked":
                    while size := int(self.rfile.readline(), 16):
                        received.pieces.append((time.monotonic(), self.rfile.read(size)))
                        self.rfile.readline()
                    self.rfile.readline()
                    received.body = b"".join(piece for _, piece in received.pieces)
                else:
                    received.body = self.rfile.read(int(received.header("Content-Length") or 0))

            def _write(self, reply: Reply) -> None:
                if reply.drop:
                    self.close_connection = True
                    return
                self.send_response_only(reply.status)
                for name, value in reply.headers:
                    self.send_header(name, value)
                whole = isinstance(reply.body, bytes)
                if whole:
                    self.send_header("Content-Length", str(len(reply.body) if reply.length is None else reply.length))
                else:
                    self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                if self.command == "HEAD":
                    return
                if whole:
                    self.wfile.write(reply.body)
                else:
                    for piece in reply.body:
                        self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                    if not reply.cut:
                        self.wfile.write(b"0\r\n\r\n")
                self.close_connection = self.close_connection or reply.cut

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, request: object, client_address: object) -> None:
                """A peer that hangs up in mid-answer is part of the tests."""

        self._server = Server(("127.0.0.1", port), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def hang_up(self) -> None:
        """Close every open connection, as a server that recycles its workers does."""
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                self._open.discard(connection)  # closed meanwhile

    def stop(self) -> None:
        """No connection can be made afterwards, and those that there are end."""
        self._server.shutdown()
        self._server.server_close()
        self.hang_up()
        self._thread.join(5)


@contextmanager
def upstream(answer: Callable[[Received], Reply] | None = None) -> Iterator[Upstream]:
    server = Upstream(answer)
    try:
        yield server
    finally:
        server.stop()


class FakeCluster:
    """Three managers and two brokers that record and answer who they are: the routing table of a cluster without its work.

    Topic ``logs`` has two partitions, led by broker 1 and 2; ``orphan`` has one without a leader.
    """

    def __init__(self) -> None:
        self.version = 1
        self.topics: dict[str, list[int | None]] = {"logs": [1, 2], "orphan": [None]}
        self.ready = {1: True, 2: True, 3: True}
        self.writer = 1
        self.managers = {number: Upstream() for number in (1, 2, 3)}
        self.brokers = {number: Upstream() for number in (1, 2)}
        self.reset()

    def reset(self) -> None:
        """Every node answers as at first, and nothing has been received."""
        for number, manager in self.managers.items():
            manager.answer = self._manager(number)
        for number, broker in self.brokers.items():
            broker.answer = self._node(f"broker-{number}")
        for node in self.nodes():
            node.received.clear()
            node.polls.clear()

    def table(self, only: str | None = None) -> dict[str, Any]:
        return {"cluster_id": "c", "version": self.version,
                "brokers": [{"broker_id": number, "host": "127.0.0.1", "port": broker.port} for number, broker in self.brokers.items()],
                "managers": [{"node_id": number, "url": manager.url, "role": "write" if number == self.writer else "read"}
                             for number, manager in self.managers.items()],
                "partitions": [{"topic": name, "topic_id": at, "partition": partition, "epoch": 1, "leader": leader,
                                "replicas": [leader] if leader else [], "status": "ACTIVE"}
                               for at, (name, leaders) in enumerate(self.topics.items(), 1) for partition, leader in enumerate(leaders)
                               if only in (None, name)]}

    def nodes(self) -> list[Upstream]:
        return [*self.managers.values(), *self.brokers.values()]

    def received(self) -> list[Received]:
        return [request for node in self.nodes() for request in node.received]

    def stop(self) -> None:
        for node in self.nodes():
            node.stop()

    def _node(self, name: str) -> Callable[[Received], Reply]:
        return lambda received: Reply(200, json.dumps({"node": name}).encode(), (("Content-Type", "application/json"), ("MyQueue-Node", name)))

    def _manager(self, number: int) -> Callable[[Received], Reply]:
        default = self._node(f"manager-{number}")

        def answer(received: Received) -> Reply:
            if received.path == "/readyz":
                return as_json({"status": "ready"}) if self.ready[number] else as_json(
                    {"error": {"code": "unavailable", "message": "its database is down"}}, 503)
            if received.path == "/v1/cluster":
                return as_json(self.table(received.target.partition("topic=")[2] or None))
            return default(received)

        return answer
