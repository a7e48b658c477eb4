"""The balancer as a Flask app, from parts that are made already."""

from __future__ import annotations

from flask import Flask

from myqueue.service.app import build_app
from myqueue.service.auth import Guard
from myqueue.service.lifecycle import Lifecycle

from .proxy import Proxy, make_blueprint
from .upstreams import Upstreams


def create_app(node: str, proxy: Proxy, upstreams: Upstreams, lifecycle: Lifecycle, guard: Guard) -> Flask:
    return build_app(node, [make_blueprint(proxy)], lifecycle=lifecycle, ready=upstreams.ready, guard=guard)
