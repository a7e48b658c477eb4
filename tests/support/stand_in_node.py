"""A real process that behaves like a node for the supervisor's tests: it listens, answers /readyz, and dies when told to.

Run as ``python stand_in_node.py --port PORT[,PORT]``; the variable STAND_IN says what it should do: ``fail`` (end with code 3 at
once), ``deaf`` (ignore SIGTERM), ``never-ready``. ``GET /die`` ends it with code 7; ``GET /environment`` tells its variables.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/die":
            os._exit(7)
        ready = self.path != "/readyz" or os.environ.get("STAND_IN") != "never-ready"
        body = json.dumps(dict(os.environ) if self.path == "/environment" else {"ready": ready}).encode()
        self.send_response(200 if ready else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", required=True)
    ports = [int(port) for port in parser.parse_args().port.split(",")]
    wish = os.environ.get("STAND_IN")
    if wish == "fail":
        sys.exit("stand-in: I cannot start, as I was told")
    signal.signal(signal.SIGTERM, signal.SIG_IGN if wish == "deaf" else lambda *_: os._exit(0))
    servers = [ThreadingHTTPServer(("127.0.0.1", port), Handler) for port in ports]
    for server in servers[1:]:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    servers[0].serve_forever()


if __name__ == "__main__":
    main()
