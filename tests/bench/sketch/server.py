"""The bare sketch of the hot path: Flask, one writing thread, COPY, one commit for all requests that wait. Run by gunicorn.

It has one partition a log, no replicas, and checks nothing. ``SKETCH_DSN`` names the database. A log's table and its row in
``head`` are there before it is used.
"""

from __future__ import annotations

import io
import os
import threading
from collections import deque
from dataclasses import dataclass, field

import psycopg2
from flask import Flask, request

from .format import COPY_IN, End, rows

ANSWER_SECONDS = 60
LOCK = "SELECT lsn, base, chain FROM head WHERE log = %s FOR UPDATE"
SET_END = "UPDATE head SET lsn = %s, base = %s, chain = %s WHERE log = %s"


@dataclass
class _Pending:
    log: str
    body: bytes
    done: threading.Event = field(default_factory=threading.Event)


class Writer:
    """Stores what waits for one log in one transaction, in the order in which it came."""

    def __init__(self, dsn: str) -> None:
        self._connection = psycopg2.connect(dsn, connect_timeout=5)
        self._waiting: deque[_Pending] = deque()
        self._changed = threading.Condition()
        threading.Thread(target=self._run, daemon=True).start()

    def submit(self, log: str, body: bytes) -> bool:
        """Whether it was stored in time."""
        pending = _Pending(log, body)
        with self._changed:
            self._waiting.append(pending)
            self._changed.notify()
        return pending.done.wait(ANSWER_SECONDS)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                log = self._waiting[0].log
                group = [pending for pending in self._waiting if pending.log == log]
                self._waiting = deque(pending for pending in self._waiting if pending.log != log)
            self._write(log, [pending.body for pending in group])
            for pending in group:
                pending.done.set()

    def _write(self, log: str, bodies: list[bytes]) -> None:
        with self._connection, self._connection.cursor() as cursor:
            cursor.execute(LOCK, (log,))
            lsn, base, chain = cursor.fetchone()
            copied, end = rows(bodies, End(lsn, base, bytes(chain)))
            cursor.copy_expert(COPY_IN.format(log=log), io.BytesIO(copied))
            cursor.execute(SET_END, (*end, log))


def make_app() -> Flask:
    app, writer = Flask(__name__), Writer(os.environ["SKETCH_DSN"])

    @app.post("/logs/<log>")
    def append(log: str) -> tuple[dict[str, bool], int]:
        stored = writer.submit(log, request.get_data(cache=False))
        return {"stored": stored}, 200 if stored else 503

    return app
