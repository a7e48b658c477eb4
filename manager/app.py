"""The Flask app of a manager: the three faces and the calls between nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flask import Blueprint, Flask

from myqueue.service.app import BODY_BYTES_MAX, build_app
from myqueue.service.auth import Guard
from myqueue.service.faces import speak_by_path
from myqueue.service.lifecycle import Lifecycle
from myqueue.service.metrics import Look


def create_app(node: str, blueprints: Sequence[Blueprint], *, lifecycle: Lifecycle, ready: Callable[[], dict[str, Any]], guard: Guard,
               look: Look) -> Flask:
    """Put the blueprints together. What no blueprint knows is told in the face that the path belongs to."""
    app = build_app(node, blueprints, lifecycle=lifecycle, ready=ready, guard=guard, look=look)
    app.config["MAX_FORM_MEMORY_SIZE"] = BODY_BYTES_MAX  # a message of 1 MiB may come as a form field
    speak_by_path(app)
    return app
