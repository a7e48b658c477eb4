"""Tells the managers that this broker lives: registration once, then a heartbeat a second with a life number.

One worker process of the node does it, the one whose database session holds an advisory lock; when it dies, the lock is
free and another takes over. The life number is raised on disk before a heartbeat that follows an acknowledged one, so that
a copy of this database that was put back shows a lower one.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg2
import sqlalchemy

from db import broker_identity
from db.broker_identity import BrokerIdentity
from myqueue.errors import MyQueueError, UnavailableError
from myqueue.protocol import routes

from .managers import Managers

LOCK_RETRY_SECONDS = 2.0
_log = logging.getLogger(__name__)


class Heartbeat:
    """Registration and heartbeats of one broker.

    Args:
        engine: a pool of one connection, which this keeps while it speaks for the node.
        registration: what managers are told: host, port, database.
        on_registered: called with the identity once it is known, in this process.
    """

    def __init__(self, engine: sqlalchemy.Engine, managers: Managers, registration: dict[str, Any], *, interval_seconds: float,
                 on_registered: Callable[[BrokerIdentity], None]) -> None:
        self._engine, self._managers, self._registration = engine, managers, registration
        self._interval_seconds, self._on_registered = interval_seconds, on_registered
        self._acknowledged = False

    def run(self, stopping: threading.Event) -> None:
        """Speak for the node until told to stop, or wait for the turn."""
        while not stopping.is_set():
            try:
                with self._session() as cursor:
                    if broker_identity.try_lock(cursor):
                        self._speak(cursor, stopping)
            except (psycopg2.Error, sqlalchemy.exc.SQLAlchemyError) as error:
                _log.warning("heartbeats pause: the database cannot be reached (%s)", type(error).__name__)
            stopping.wait(LOCK_RETRY_SECONDS)

    @contextmanager
    def _session(self) -> Iterator[Any]:
        """A session of its own, ended afterwards and with it the lock."""
        pooled = self._engine.raw_connection()
        try:
            pooled.driver_connection.autocommit = True
            with pooled.driver_connection.cursor() as cursor:
                yield cursor
        finally:
            pooled.invalidate()

    def _speak(self, cursor: Any, stopping: threading.Event) -> None:
        while not stopping.is_set():
            try:
                self._register(cursor)
                break
            except MyQueueError as error:
                _log.warning("registration failed, trying again: %s", error.message, extra={"code": error.code})
            stopping.wait(self._interval_seconds)
        while not stopping.is_set():
            try:
                self.beat(cursor)
            except UnavailableError as error:
                _log.warning("no manager took the heartbeat: %s", error.message, extra={"code": error.code})
            except MyQueueError as error:
                _log.error("a manager refused the heartbeat: %s", error.message, extra={"code": error.code})
            stopping.wait(self._interval_seconds)

    def _register(self, cursor: Any) -> None:
        known = broker_identity.load(cursor)
        request = {"disk_id": known.disk_id, "broker_id": known.broker_id, **self._registration}
        answer = self._managers.post(routes.I_BROKERS, json.dumps(request).encode())
        broker_identity.register(cursor, cluster_id=answer["cluster_id"], broker_id=answer["broker_id"])
        identity = broker_identity.load(cursor)
        _log.info("registered as broker %s of cluster %s", identity.broker_id, identity.cluster_id)
        self._on_registered(identity)

    def beat(self, cursor: Any) -> None:
        """Send one heartbeat. One that was not acknowledged is sent again with the same life number."""
        known = broker_identity.load(cursor)
        life = broker_identity.raise_life(cursor) if self._acknowledged or known.life == 0 else known.life
        self._acknowledged = False
        heartbeat = {"type": "broker", "actor_id": known.broker_id, "age_seconds": 0.0}
        self._managers.post(routes.I_HEARTBEATS, json.dumps({"heartbeats": [heartbeat], "life": life}).encode())
        self._acknowledged = True
