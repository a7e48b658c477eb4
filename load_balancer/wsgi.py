"""Puts a worker of the balancer together: the one place where its parts are made."""

from __future__ import annotations

from flask import Flask

from myqueue.client.transport import RequestsTransport
from myqueue.clock import SystemClock
from myqueue.service.auth import Guard
from myqueue.service.lifecycle import Lifecycle

from .app import create_app
from .connections import Connections
from .proxy import Proxy
from .settings import BalancerSettings
from .upstreams import Upstreams


def create(settings: BalancerSettings) -> Flask:
    """An app whose background thread starts with its lifecycle."""
    clock, lifecycle = SystemClock(), Lifecycle()
    transport = RequestsTransport(token=settings.token, connect_timeout_seconds=settings.connect_timeout_seconds)
    upstreams = Upstreams(settings.managers, transport, clock, interval_seconds=settings.refresh_interval_seconds,
                          poll_timeout_seconds=settings.poll_timeout_seconds)
    connections = Connections(clock, connect_timeout_seconds=settings.connect_timeout_seconds,
                              in_flight_max=max(1, int(settings.threads * settings.backend_share)), stopping=lifecycle.stopping)
    proxy = Proxy(upstreams, connections, manager_timeout_seconds=settings.manager_timeout_seconds,
                  broker_timeout_seconds=settings.broker_timeout_seconds)
    for close in (transport.close, connections.close, upstreams.close):
        lifecycle.on_stop(close)
    lifecycle.thread("upstreams", upstreams.watch)
    return create_app(settings.node, proxy, upstreams, lifecycle, Guard(clock, token=settings.token))
