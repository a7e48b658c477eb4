"""Numbered, forward-only migrations: ``db/migrations/<kind>/NNNN_name.sql``, each applied once in a transaction of its own.

A file that was applied never changes: its digest is kept beside its number. What to do is decided by a pure function;
the shell around it holds an advisory lock, so that any number of workers may start at once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2
import sqlalchemy

from myqueue.errors import ConfigurationError, UnavailableError

KINDS = ("broker", "manager")
FOLDER = Path(__file__).parent / "migrations"
FILE_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
ADVISORY_LOCK = 0x6D79_7175_6575_65  # "myqueue": one for all kinds, a database is of one kind
LOCK_WAIT_SECONDS = 60
MIGRATION_SECONDS_MAX = 600
CREATE_TABLE = """CREATE TABLE IF NOT EXISTS schema_migration (
    version int PRIMARY KEY,
    name text NOT NULL,
    sha256 text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)"""
LIST_APPLIED = "SELECT version, name, sha256 FROM schema_migration ORDER BY version"
RECORD = "INSERT INTO schema_migration (version, name, sha256) VALUES (%s, %s, %s)"


@dataclass(frozen=True, slots=True, order=True)
class Applied:
    """What a database says it has."""

    version: int
    name: str
    sha256: str


@dataclass(frozen=True, slots=True, order=True)
class Migration(Applied):
    """What the code brings."""

    sql: str


def load_migrations(kind: str, folder: Path = FOLDER) -> list[Migration]:
    """The migrations of a kind of database, in order.

    Raises:
        ConfigurationError: there is no such kind, a file has a wrong name, or a number is missing or given twice.
    """
    files = sorted((folder / kind).glob("*")) if (folder / kind).is_dir() else []
    if not files:
        raise ConfigurationError(f"there are no migrations for a {kind!r} database")
    migrations = []
    for path in files:
        parts = FILE_NAME.fullmatch(path.name)
        if parts is None:
            raise ConfigurationError(f"{path.name} is no name for a migration: it should look like 0001_create_log.sql")
        sql = path.read_text(encoding="utf-8")
        migrations.append(Migration(int(parts[1]), parts[2], hashlib.sha256(sql.encode()).hexdigest(), sql))
    if [migration.version for migration in migrations] != list(range(1, len(migrations) + 1)):
        raise ConfigurationError(f"the {kind} migrations must be numbered from 0001 without gaps")
    return migrations


def plan_migrations(known: Sequence[Migration], applied: Sequence[Applied]) -> list[Migration]:
    """What is still to be applied, in order.

    Raises:
        ConfigurationError: the database is newer than the code, of another kind, or an applied file has changed.
    """
    for theirs, ours in zip(applied, known, strict=False):
        if (theirs.version, theirs.name) != (ours.version, ours.name):
            raise ConfigurationError(f"the database's version {theirs.version} is {theirs.name!r}, this program's is {ours.name!r}: "
                                     "this is a database of another kind")
        if theirs.sha256 != ours.sha256:
            raise ConfigurationError(f"migration {ours.version:04}_{ours.name}.sql has changed since it was applied to this database: "
                                     "put it back and add a new one instead")
    if len(applied) > len(known):
        raise ConfigurationError(f"the database is at version {applied[-1].version}, this program knows versions up to {len(known)}: "
                                 "use a newer program")
    return list(known[len(applied):])


def migrate(engine: sqlalchemy.Engine, kind: str, *, folder: Path = FOLDER) -> list[int]:
    """Bring a database up to date; when this returns it is, whoever did it.

    Returns:
        The versions that this call applied.

    Raises:
        ConfigurationError: see :func:`plan_migrations`; nothing was applied.
        UnavailableError: another process held the migration lock all the time.
    """
    known = load_migrations(kind, folder)
    connection = engine.raw_connection()
    try:
        with _locked(connection):
            with _transaction(connection) as cursor:
                cursor.execute(CREATE_TABLE)
            todo = plan_migrations(known, _applied(connection))
            for migration in todo:
                with _transaction(connection) as cursor:
                    cursor.execute(f"SET LOCAL statement_timeout = {MIGRATION_SECONDS_MAX * 1_000}")
                    cursor.execute(migration.sql)
                    cursor.execute(RECORD, (migration.version, migration.name, migration.sha256))
            return [migration.version for migration in todo]
    finally:
        connection.close()


def status(engine: sqlalchemy.Engine, kind: str, *, folder: Path = FOLDER) -> tuple[list[Applied], list[Migration]]:
    """What is applied and what is still to do; changes nothing. Raises like :func:`plan_migrations`."""
    known = load_migrations(kind, folder)
    connection = engine.raw_connection()
    try:
        with _transaction(connection) as cursor:
            cursor.execute("SELECT to_regclass('schema_migration') IS NOT NULL")
            applied = _applied(connection) if cursor.fetchone()[0] else []
        return applied, plan_migrations(known, applied)
    finally:
        connection.close()


@contextmanager
def _transaction(connection: Any) -> Iterator[Any]:
    try:
        with connection.cursor() as cursor:
            yield cursor
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


@contextmanager
def _locked(connection: Any) -> Iterator[None]:
    """Hold the migration lock of this database, across transactions. A process that dies lets go of it."""
    try:
        with _transaction(connection) as cursor:
            cursor.execute(f"SET LOCAL lock_timeout = {LOCK_WAIT_SECONDS * 1_000}")
            cursor.execute(f"SET LOCAL statement_timeout = {(LOCK_WAIT_SECONDS + 5) * 1_000}")
            cursor.execute("SELECT pg_advisory_lock(%s)", (ADVISORY_LOCK,))
    except psycopg2.errors.LockNotAvailable:
        raise UnavailableError(f"another process has been migrating this database for {LOCK_WAIT_SECONDS} s") from None
    try:
        yield
    finally:
        with _transaction(connection) as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", (ADVISORY_LOCK,))


def _applied(connection: Any) -> list[Applied]:
    with connection.cursor() as cursor:
        cursor.execute(LIST_APPLIED)
        return [Applied(*row) for row in cursor.fetchall()]
