"""A real HTTP server on loopback that answers JSON documents: the part of a cluster that the pipeline asks over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NOBODY = {"/v1/groups": {"groups": []}, "/v1/health": {"consumers": []}}  # who reads


class SnapshotServer:
    """Answers ``GET /v1/cluster`` with ``body`` and other paths with ``answers``, which a test may change while it runs."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body
        self.answers: dict[str, Any] = dict(NOBODY)
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
            answers = {**state.answers, "/v1/cluster": state.body}
            found = answers.get(self.path.split("?")[0])
            raw = json.dumps({"error": {"code": "not_found", "message": "no such path"}} if found is None else found).encode()
            self.send_response(404 if found is None else state.status)
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
