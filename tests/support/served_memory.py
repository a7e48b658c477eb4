"""A cluster in memory behind a real loopback socket, for what starts processes of its own: the CLI and scripts that use the SDK."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from myqueue.errors import OutcomeUnknownError, UnreachableError
from myqueue.protocol.types import NodeAddress
from myqueue.testing import InMemoryTransport


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 20
    transport: InMemoryTransport

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        params = {name: values if name == "topic" else values[0] for name, values in parse_qs(parts.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            answer = self.transport.request(self.command, f"http://{self.headers['Host']}{parts.path}", params=params,
                                            headers=dict(self.headers), body=body or None)
        except (OutcomeUnknownError, UnreachableError):
            self.close_connection = True  # the request was carried out, the answer is lost
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    do_GET = do_POST = do_PUT = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Tests are quiet."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away in the middle of its poll is no error, and must not speak into another test's output."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def served(transport: InMemoryTransport) -> Iterator[str]:
    """The address of a server before ``transport``; it plays the balancer and every broker."""
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"transport": transport}))
    for number in transport.brokers:
        transport.brokers[number] = NodeAddress("127.0.0.1", server.server_port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
