"""``python -m load_balancer``: run the balancer until it is told to stop."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from myqueue.service.gunicorn_conf import serve
from myqueue.settings import parse

from .settings import BalancerSettings

if TYPE_CHECKING:
    from flask import Flask


def main() -> None:
    settings = parse(BalancerSettings, sys.argv[1:], os.environ, prog="python -m load_balancer",
                     description="One address for a MyQueue cluster: passes each request to the manager or broker that can answer it.")

    def make_app() -> Flask:
        from .wsgi import create  # in the worker only: metrics decide at import how they are summed

        return create(settings)

    serve(settings.node, make_app, host=settings.host, ports=settings.ports, workers=settings.workers, threads=settings.threads,
          limits=settings.client_limits, log_level=settings.log_level, token=settings.token, secret_file=settings.secret_file)


if __name__ == "__main__":
    main()
