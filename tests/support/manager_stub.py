"""A loopback stand-in for the managers, for tests of one broker: registers it, takes its heartbeats, describes topics."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CLUSTER_ID = "test-cluster"


class ManagerStub:
    """What it was told, and what it answers."""

    def __init__(self, *, many: bool = False) -> None:
        self.many = many  # every disk is another broker; otherwise all are broker 1
        self.registrations: list[dict[str, Any]] = []
        self.heartbeats: list[dict[str, Any]] = []
        self.passed_on: list[tuple[str, bytes]] = []
        self.topics: dict[str, dict[str, Any]] = {}
        self.broker_ids: dict[str, int] = {}  # by disk
        self.brokers: dict[int, dict[str, Any]] = {}
        self.available = True
        self.url = ""

    def describe_topic(self, topic: str, *, partitions: int, leaders: dict[int, int] | None = None) -> None:
        self.topics[topic] = {"topic": topic, "topic_id": 1, "partitions": partitions,
                              "partition_list": [{"partition": number, "leader": leader} for number, leader in (leaders or {}).items()]}

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        if not self.available:
            return 503, {"error": {"code": "unavailable", "message": "no write manager", "retriable": True, "outcome": "not_done", "details": {}}}
        if path == "/internal/brokers":
            told = json.loads(body)
            self.registrations.append(told)
            broker_id = self.broker_ids.setdefault(told["disk_id"], len(self.broker_ids) + 1) if self.many else 1
            self.brokers[broker_id] = {"broker_id": broker_id, "host": told["host"], "port": told["port"]}
            return 200, {"broker_id": broker_id, "cluster_id": CLUSTER_ID}
        if method == "GET" and path.startswith("/v1/cluster"):
            return 200, {"brokers": list(self.brokers.values())}
        if path == "/internal/heartbeats":
            self.heartbeats.append(json.loads(body))
            return 200, {"version": 1}
        if method == "GET" and path.startswith("/v1/topics/"):
            found = self.topics.get(path.removeprefix("/v1/topics/"))
            return (200, found) if found else (404, {"error": {"code": "unknown_topic", "message": "no such topic", "details": {}}})
        self.passed_on.append((path, body))
        return 201, {"status": "Success", "consumer_id": 7, "partitions": [0]}


@contextmanager
def manager_stub(*, many: bool = False) -> Iterator[ManagerStub]:
    """A stand-in that listens until the block ends."""
    stub = ManagerStub(many=many)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 10

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, answer = stub.answer(self.command, self.path, body)
            raw = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            if status == 503:
                self.send_header("Retry-After", "1")
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST = _serve

        def log_message(self, *args: object) -> None:
            """Says nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that goes away is no news."""

    server = Server(("127.0.0.1", 0), Handler)
    stub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
