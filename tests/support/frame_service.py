"""The smallest service on our frame, for tests of the frame itself: ``python -m tests.support.frame_service --port N [--workers N]``."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from myqueue.service.gunicorn_conf import serve
from myqueue.service.limits import Limits
from myqueue.service.wakeups import Wakeups

if TYPE_CHECKING:
    from flask import Flask


def make_app(wakeups: Wakeups) -> Flask:
    from flask import Blueprint, Response, jsonify, request

    from myqueue.service.app import build_app
    from myqueue.service.faults import fault_point
    from myqueue.service.lifecycle import Lifecycle

    lifecycle, blueprint = Lifecycle(), Blueprint("frame", __name__)
    ticks: list[float] = []
    flooding: list[int] = []
    waiting: list[float] = []  # when each poll of this process began
    lifecycle.every("ticks", 0.05, lambda: ticks.append(time.monotonic()))

    @blueprint.route("/echo", methods=["GET", "POST"])
    def echo() -> object:
        return jsonify({"pid": os.getpid(), "path": request.path, "scheme": request.scheme, "body": request.get_data(as_text=True)})

    @blueprint.get("/poll")
    def poll() -> object:
        stamp = wakeups.stamp("key")
        began = time.monotonic()
        waiting.append(began)
        woken = wakeups.wait("key", stamp, float(request.args["seconds"]), lifecycle.stopping)
        return jsonify({"woken": woken, "pid": os.getpid(), "seconds": time.monotonic() - began})

    @blueprint.post("/wake")
    def wake() -> object:
        wakeups.wake("key")
        return jsonify({"pid": os.getpid(), "monotonic": time.monotonic()})

    @blueprint.get("/fault")
    def fault() -> object:
        fault_point("here")
        return jsonify({"passed": True})

    @blueprint.get("/flood")
    def flood() -> object:
        """An answer without end."""
        def pieces() -> Iterator[bytes]:
            flooding.append(1)
            try:
                while True:
                    yield b"x" * 65_536
            finally:
                flooding.pop()

        return Response(pieces())

    @blueprint.get("/counts")
    def count() -> object:
        return jsonify({"ticks": len(ticks), "polls": len(waiting), "floods": len(flooding)})

    return build_app("frame", [blueprint], lifecycle=lifecycle, ready=dict)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--connections-max", type=int, default=2_000)
    parser.add_argument("--request-seconds", type=float, default=10.0)
    parser.add_argument("--stalled-seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    wakeups = Wakeups(arguments.workers)
    serve("frame", lambda: make_app(wakeups), host=arguments.host, ports=[arguments.port], workers=arguments.workers, threads=16,
          limits=Limits(arguments.connections_max, arguments.request_seconds, arguments.stalled_seconds))


if __name__ == "__main__":
    main()
