"""A loopback proxy before a real cluster that carries every request out and loses some of the answers."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests

from myqueue.protocol import routes

DROPPED = {"connection", "content-length", "transfer-encoding", "host", "keep-alive"}


class LossyProxy:
    """``address`` plays the balancer and, in the routing snapshot it passes on, every broker; every ``nth`` append's answer is lost."""

    def __init__(self, target: str, nth: int) -> None:
        self.target = target
        self.appends = itertools.count(1)
        self.nth = nth
        self.lost = 0
        self.address = ""

    def loses(self, method: str, path: str) -> bool:
        is_lost = method == "POST" and path.endswith("/records") and next(self.appends) % self.nth == 0
        self.lost += is_lost
        return is_lost


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30
    proxy: LossyProxy

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in DROPPED}
        answer = requests.request(self.command, self.proxy.target + self.path, headers=headers, data=body, timeout=30)
        if self.proxy.loses(self.command, self.path):
            self.close_connection = True
            return
        content = answer.content
        if self.path.startswith(routes.CLUSTER):
            content = self._through_us(content)
        self.send_response(answer.status_code)
        for name, value in answer.headers.items():
            if name.lower() not in DROPPED:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _through_us(self, content: bytes) -> bytes:
        host, port = self.proxy.address.split(":")
        snapshot = json.loads(content)
        for broker in snapshot["brokers"]:
            broker.update(host=host, port=int(port))
        return json.dumps(snapshot).encode()

    do_GET = do_POST = do_PUT = _pass_on

    def log_message(self, format: str, *args: object) -> None:
        """Tests are quiet."""


@contextmanager
def lossy_proxy(target: str, *, nth: int) -> Iterator[LossyProxy]:
    proxy = LossyProxy(target, nth)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": proxy}))
    server.daemon_threads = True
    proxy.address = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
