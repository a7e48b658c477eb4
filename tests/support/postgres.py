"""A real PostgreSQL for tests: the embedded one, or the server that DATABASE_URL names. Fresh migrated databases in a moment."""

from __future__ import annotations

import itertools
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg2
from psycopg2 import sql

from db.engine import libpq_url, make_engine, parse_url
from db.local_postgres import LocalPostgres
from db.migrate import migrate
from tests.support.removal import remove_later

NEW_DISK = {"manager": "UPDATE raft_state SET disk_id = gen_random_uuid()", "broker": "UPDATE broker_identity SET disk_id = gen_random_uuid()"}
TEST_SETTINGS = {"max_connections": 200, "shared_buffers": "64MB"}  # durable like the real one: fsync stays on


@contextmanager
def open_folder(prefix: str = "myqueue-test-") -> Iterator[Path]:
    """A temporary folder that an account below root may enter (pytest's own are closed to others), gone a little later."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        remove_later(folder)


class PostgresForTests:
    """Makes databases on one server, each from a template that was migrated once."""

    def __init__(self, admin_url: str) -> None:
        self.admin_url = admin_url
        self._token = secrets.token_hex(4)
        self._numbers = itertools.count(1)
        self._templates: dict[str, str] = {}

    def url(self, database: str) -> str:
        return parse_url(self.admin_url).set(drivername="postgresql", database=database).render_as_string(hide_password=False)

    @contextmanager
    def database(self, kind: str | None = None) -> Iterator[str]:
        """The URL of a fresh database, migrated as ``kind`` (or empty), dropped afterwards whoever is still connected."""
        name = self._create(self._template(kind) if kind else "template1")
        if kind:
            self._admin(NEW_DISK[kind], database=name)  # a template's copies would all be the same disk
        try:
            yield self.url(name)
        finally:
            self._admin("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def close(self) -> None:
        for name in self._templates.values():
            self._admin("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def _template(self, kind: str) -> str:
        if kind not in self._templates:
            name = self._create("template1")
            engine = make_engine(self.url(name), application_name="tests", pool_size=1)
            try:
                migrate(engine, kind)
            finally:
                engine.dispose()
            self._templates[kind] = name
        return self._templates[kind]

    def _create(self, template: str) -> str:
        name = f"test_{self._token}_{next(self._numbers)}"
        self._admin("CREATE DATABASE {} TEMPLATE {}", name, template)
        return name

    def _admin(self, statement: str, *names: str, database: str | None = None) -> None:
        connection = psycopg2.connect(libpq_url(self.url(database) if database else self.admin_url), connect_timeout=5)
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))
        finally:
            connection.close()


@contextmanager
def postgres_for_tests() -> Iterator[PostgresForTests]:
    """The server of DATABASE_URL if that is set, else an embedded one that is gone afterwards."""
    if os.environ.get("DATABASE_URL"):
        server = PostgresForTests(os.environ["DATABASE_URL"])
        try:
            yield server
        finally:
            server.close()
        return
    with open_folder() as folder, LocalPostgres(folder / "postgres", settings=TEST_SETTINGS) as local:
        yield PostgresForTests(local.url())
