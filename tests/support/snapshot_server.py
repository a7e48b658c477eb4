"""A real HTTP server on loopback that answers one JSON document: the part of a cluster that the pipeline asks over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class SnapshotServer:
    """Answers ``GET /v1/cluster`` with ``body``, which a test may change while it runs."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body
        self.status = 200
        self.address = ""
        self.authorizations: list[str | None] = []  # what each call showed


@contextmanager
def snapshot_server(body: dict[str, Any]) -> Iterator[SnapshotServer]:
    """The server, gone afterwards."""
    state = SnapshotServer(body)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.authorizations.append(self.headers.get("Authorization"))
            found = self.path.split("?")[0] == "/v1/cluster"
            raw = json.dumps(state.body if found else {"error": {"code": "not_found", "message": "no such path"}}).encode()
            self.send_response(state.status if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_arguments: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            state.address = f"127.0.0.1:{server.server_address[1]}"
            yield state
        finally:
            server.shutdown()
            thread.join(timeout=5)
