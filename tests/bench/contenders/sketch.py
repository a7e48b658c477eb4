"""The client's side of the sketch, and its server on top of the PostgreSQL that the other baseline has too."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from db.local_postgres import free_port
from tests.bench.machine import ROOT
from tests.bench.plan import SKETCH
from tests.bench.processes import start_server
from tests.bench.sketch.format import HEAD, TABLE, pack
from tests.bench.threads import side_by_side

from .base import HOST, WORK_SECONDS, Contender
from .http import Http
from .postgres import PostgresAlone, table_name

IN_FLIGHT = 3
SERVER_THREADS = 8


class Sketch(Contender):
    name = SKETCH

    def __init__(self, folder: Path, postgres: PostgresAlone, stack: ExitStack) -> None:
        self._postgres, self._address = postgres, f"{HOST}:{free_port()}"
        postgres.run(HEAD)
        command = [sys.executable, "-m", "gunicorn", "--worker-class", "gthread", "--workers", "1", "--threads", str(SERVER_THREADS),
                   "--no-control-socket", "--bind", self._address, "tests.bench.sketch.server:make_app()"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "SKETCH_DSN": postgres.dsn}
        pid = start_server("the sketch", command, folder=folder, port=int(self._address.rpartition(":")[2]), environment=environment, stack=stack)
        self.roots = {"server": [pid], **postgres.roots}

    def create(self, log: str) -> None:
        self._postgres.run(TABLE.format(log=_name(log)))
        self._postgres.run("INSERT INTO head VALUES (%s, 0, 0, '')", (_name(log),))

    def producing(self, log: str, value: bytes, count: int, batch: int, stack: ExitStack) -> Callable[[], None]:
        clients = [Http(self._address, stack) for _ in range(IN_FLIGHT)]
        firsts, lock, path = iter(range(0, count, batch)), threading.Lock(), f"/logs/{_name(log)}"

        def send(client: Http) -> None:
            while True:
                with lock:
                    first = next(firsts, None)
                if first is None:
                    return
                client.ask("POST", path, pack([value] * min(batch, count - first)))

        return lambda: side_by_side([lambda client=client: send(client) for client in clients], WORK_SECONDS)

    def consuming(self, log: str, stack: ExitStack) -> Callable[[int], int]:
        raise NotImplementedError("the sketch has no read path")

    def caller(self, log: str, stack: ExitStack) -> Callable[[bytes], None]:
        client, path = Http(self._address, stack), f"/logs/{_name(log)}"

        def call(value: bytes) -> None:
            client.ask("POST", path, pack([value]))

        return call

    def fsyncs(self) -> int | None:
        return self._postgres.fsyncs()


def _name(log: str) -> str:
    return table_name(f"s-{log}")
