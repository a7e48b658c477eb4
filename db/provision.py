"""Roles and databases of a cluster on one server: an owner, a read-only login for Spark and people, a database per node.

Everything here may be repeated: what is there already is brought to what is wanted. Names are identifiers only through
``psycopg2.sql``; a password reaches the server only as its scram verifier, so that no server log can hold it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg2
from psycopg2 import sql
from psycopg2.extensions import encrypt_password

from myqueue.errors import ConfigurationError, UnavailableError

from .engine import connect_arguments, libpq_url, parse_url

NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
NODE = re.compile(r"[a-z]+-[1-9][0-9]{0,4}")
READER_CONNECTIONS_MAX = 32  # a Spark job must not take the services' connections
ROLE_LIMITS = {"idle_in_transaction_session_timeout": "5s", "lock_timeout": "5s"}
STATEMENT_TIMEOUT_SECONDS = 120  # CREATE DATABASE copies files


@dataclass(frozen=True, slots=True)
class Names:
    """How a cluster's roles and databases are called on a server.

    Raises:
        ConfigurationError: the prefix or a node has a name that does not fit.
    """

    prefix: str
    nodes: tuple[str, ...]
    login: str | None = None  # the owner, where it is not PREFIX_owner: a login per node

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.prefix):
            raise ConfigurationError(f"{self.prefix!r} is no prefix: up to 31 of a-z, 0-9 and _, a letter first")
        if self.login is not None and not NAME.fullmatch(self.login):
            raise ConfigurationError(f"{self.login!r} is no login: up to 31 of a-z, 0-9 and _, a letter first")
        for node in self.nodes:
            if not NODE.fullmatch(node):
                raise ConfigurationError(f"{node!r} is no node: it should look like broker-1")

    @property
    def owner(self) -> str:
        return self.login or f"{self.prefix}_owner"

    @property
    def reader(self) -> str:
        return f"{self.prefix}_reader"

    def database(self, node: str) -> str:
        return f"{self.prefix}_{node.replace('-', '_')}"


def create(admin_url: str, names: Names, *, owner_password: str, reader_password: str) -> None:
    """Make what is missing; when this returns both roles can log in, and the reader reads all present and future tables of every node.

    Args:
        admin_url: a role that may create roles and databases; its database is only used to connect.

    Raises:
        UnavailableError: no connection could be made.
        ConfigurationError: the server refused; says why.
    """
    with _connected(admin_url) as connection:
        _ensure_role(connection, names.owner, owner_password, extra="")
        _ensure_role(connection, names.reader, reader_password, extra=f"CONNECTION LIMIT {READER_CONNECTIONS_MAX}")
        _run(connection, "ALTER ROLE {} SET default_transaction_read_only = on", names.reader)
        if not _value(connection, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"):
            _run(connection, "GRANT {} TO CURRENT_USER", names.owner)  # only a member may give databases to a role
        for node in names.nodes:
            database = names.database(node)
            if not _value(connection, "SELECT 1 FROM pg_database WHERE datname = %s", database):
                _run(connection, "CREATE DATABASE {} OWNER {} TEMPLATE template0 ENCODING 'UTF8'", database, names.owner)
    for node in names.nodes:
        with _connected(admin_url, names.database(node)) as connection:
            _grant_reading(connection, names, names.database(node))


def drop(admin_url: str, names: Names) -> None:
    """Remove the databases, whoever is connected, and both roles. What is gone already is fine. Raises like :func:`create`."""
    with _connected(admin_url) as connection:
        for node in names.nodes:
            _run(connection, "DROP DATABASE IF EXISTS {} WITH (FORCE)", names.database(node))
        for role in (names.reader, names.owner):
            _run(connection, "DROP ROLE IF EXISTS {}", role)


def _ensure_role(connection: Any, role: str, password: str, *, extra: str) -> None:
    verb = "ALTER" if _value(connection, "SELECT 1 FROM pg_roles WHERE rolname = %s", role) else "CREATE"
    verifier = encrypt_password(password, role, connection, "scram-sha-256")
    with connection.cursor() as cursor:
        cursor.execute(sql.SQL(f"{verb} ROLE {{}} LOGIN {extra} PASSWORD {{}}").format(sql.Identifier(role), sql.Literal(verifier)))
    for name, value in ROLE_LIMITS.items():
        _run(connection, f"ALTER ROLE {{}} SET {name} = '{value}'", role)


def _grant_reading(connection: Any, names: Names, database: str) -> None:
    _run(connection, "REVOKE ALL ON DATABASE {} FROM PUBLIC", database)
    _run(connection, "GRANT CONNECT ON DATABASE {} TO {}", database, names.reader)
    _run(connection, "SET ROLE {}", names.owner)
    _run(connection, "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO {}", names.reader)
    _run(connection, "ALTER DEFAULT PRIVILEGES GRANT SELECT ON SEQUENCES TO {}", names.reader)
    _run(connection, "ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO {}", names.reader)
    for kind in ("TABLES", "SEQUENCES", "FUNCTIONS"):
        privilege = "EXECUTE" if kind == "FUNCTIONS" else "SELECT"
        _run(connection, f"GRANT {privilege} ON ALL {kind} IN SCHEMA public TO {{}}", names.reader)


@contextmanager
def _connected(admin_url: str, database: str | None = None) -> Iterator[Any]:
    url = parse_url(admin_url)
    if database:
        url = url.set(database=database)
    arguments = connect_arguments(application_name="myqueue create", statement_timeout_seconds=STATEMENT_TIMEOUT_SECONDS)
    try:
        with closing(psycopg2.connect(libpq_url(url.render_as_string(hide_password=False)), **arguments)) as connection:
            connection.autocommit = True
            yield connection
    except psycopg2.OperationalError as error:
        raise UnavailableError(f"the database server at {url.host}:{url.port or 5432} does not answer as it should: {_first_line(error)}") from None
    except psycopg2.Error as error:
        raise ConfigurationError(f"the database server at {url.host}:{url.port or 5432} refused: {_first_line(error)}") from None


def _run(connection: Any, statement: str, *names: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


def _value(connection: Any, query: str, *parameters: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(query, parameters or None)
        row = cursor.fetchone()
        return row[0] if row else None


def _first_line(error: psycopg2.Error) -> str:
    return str(error).strip().split("\n")[0]
