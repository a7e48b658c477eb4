"""The broker's Flask app from its parts."""

from __future__ import annotations

from flask import Flask

from db.log_store import LogStore
from myqueue.service.app import build_app
from myqueue.service.auth import Guard
from myqueue.service.faces import speak_by_path
from myqueue.service.lifecycle import Lifecycle
from myqueue.service.metrics import Look

from .api import internal, partition, records
from .api.packed import PackedAppends
from .core.appends import BODY_BYTES_MAX
from .directory import Directory
from .follower import Follower
from .identity import Identity
from .managers import Managers
from .service import BrokerService


def create_app(node: str, service: BrokerService, store: LogStore, directory: Directory, identity: Identity, managers: Managers, follower: Follower,
               lifecycle: Lifecycle, guard: Guard, look: Look) -> Flask:
    """All faces of a broker. What no blueprint knows is told in the face that the path belongs to."""
    blueprints = [records.make_blueprint(service, directory), partition.make_blueprint(service, store, directory, managers, identity.who),
                  internal.make_blueprint(service, follower, identity.told)]
    app = build_app(node, blueprints, lifecycle=lifecycle, ready=identity.ready, guard=guard, body_bytes_max=BODY_BYTES_MAX, look=look)
    app.config["MAX_FORM_MEMORY_SIZE"] = BODY_BYTES_MAX  # a message of 1 MiB may come as a form field
    speak_by_path(app)
    app.wsgi_app = PackedAppends(app, node, guard, service, directory)  # type: ignore[method-assign]
    return app
