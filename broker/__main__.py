"""``python -m broker``: run a broker until it is told to stop."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from myqueue.clock import SystemClock
from myqueue.service.gunicorn_conf import serve
from myqueue.service.wakeups import Wakeups
from myqueue.settings import parse

from .buckets import Buckets
from .settings import BrokerSettings

if TYPE_CHECKING:
    from flask import Flask


def main() -> None:
    settings = parse(BrokerSettings, sys.argv[1:], os.environ, prog="python -m broker",
                     description="A broker of a MyQueue cluster: keeps partitions in its PostgreSQL database and serves reads and writes.")
    wakeups, buckets = Wakeups(settings.workers), Buckets(SystemClock())  # their memory is shared by the workers, so they are made before these

    def make_app() -> Flask:
        from .wsgi import create  # in the worker only: metrics decide at import how they are summed

        return create(settings, wakeups, buckets)

    serve("broker", make_app, host=settings.host, ports=[settings.port], workers=settings.workers, threads=settings.threads,
          limits=settings.client_limits, log_level=settings.log_level, token=settings.token, secret_file=settings.secret_file)


if __name__ == "__main__":
    main()
