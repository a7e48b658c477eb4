"""``python -m manager``: one manager, in the foreground, until SIGTERM or SIGINT."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from manager.node.role import Role
from manager.settings import ManagerSettings
from myqueue.clock import SystemClock
from myqueue.service.gunicorn_conf import serve
from myqueue.service.wakeups import Wakeups
from myqueue.settings import parse

if TYPE_CHECKING:
    from flask import Flask


def main() -> None:
    settings = parse(ManagerSettings, sys.argv[1:], os.environ, prog="python -m manager", description="One manager of a MyQueue cluster.")
    wakeups = Wakeups(settings.workers)  # shared by the workers, so made before they are
    role = Role(settings.node_id, SystemClock(), leader_kept_seconds=2 * settings.election_timeout_seconds)

    def make_app() -> Flask:
        from manager.wsgi import create  # in the worker: what it imports must not be loaded before the fork

        return create(settings, wakeups, role)

    serve(settings.node, make_app, host=settings.host, ports=[settings.port], workers=settings.workers, threads=settings.threads,
          limits=settings.client_limits, log_level=settings.log_level, token=settings.token, secret_file=settings.secret_file)


if __name__ == "__main__":
    main()
