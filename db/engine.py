"""Engines: one way to connect, with a limit on everything that can wait. Importing this connects to nothing."""

from __future__ import annotations

import re
import select
from typing import Any

import sqlalchemy
from sqlalchemy import event, exc, pool

from myqueue.errors import ConfigurationError

DRIVER = "postgresql+psycopg2"
CONNECT_TIMEOUT_SECONDS = 5
TCP_USER_TIMEOUT_MS = 8_000  # without it, a connection whose network was cut hangs for about 15 minutes
STATEMENT_TIMEOUT_SECONDS = 30.0
LOCK_TIMEOUT_SECONDS = 5.0
IDLE_IN_TRANSACTION_SECONDS = 5.0  # an idle transaction keeps every dead head row alive
POOL_WAIT_SECONDS = 5.0
POOL_SIZE = 8
# What makes an acknowledged commit survive a crash. Each must be on.
DURABILITY = ("fsync", "full_page_writes", "synchronous_commit")


def parse_url(database_url: str) -> sqlalchemy.URL:
    """A database URL in any of its three spellings (``postgres:``, ``postgresql:``, ``postgresql+driver:``), for our driver.

    Raises:
        ConfigurationError: it is not a PostgreSQL URL that names a database. The message never shows it: it may hold a password.
    """
    plain = re.sub(r"^postgres(ql)?(\+\w+)?:", "postgresql:", database_url.strip())
    try:
        url = sqlalchemy.make_url(plain)
    except (exc.ArgumentError, ValueError):
        raise ConfigurationError("the database URL cannot be read: it should look like postgresql://user:password@host:port/database") from None
    if url.drivername != "postgresql":
        raise ConfigurationError(f"the database URL is for {url.drivername}: only PostgreSQL is known here")
    if not url.database:
        raise ConfigurationError("the database URL names no database: it should end with /name")
    return url.set(drivername=DRIVER)


def libpq_url(database_url: str) -> str:
    """The URL as psycopg2 and ``psql`` read it, password included: never log it."""
    return parse_url(database_url).set(drivername="postgresql").render_as_string(hide_password=False)


def connect_arguments(*, application_name: str, statement_timeout_seconds: float = STATEMENT_TIMEOUT_SECONDS,
                      lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS,
                      idle_in_transaction_seconds: float = IDLE_IN_TRANSACTION_SECONDS) -> dict[str, Any]:
    """What every connection is made with: keyword arguments of ``psycopg2.connect``."""
    limits = {"statement_timeout": statement_timeout_seconds, "lock_timeout": lock_timeout_seconds,
              "idle_in_transaction_session_timeout": idle_in_transaction_seconds}
    return {
        "application_name": application_name,
        "connect_timeout": CONNECT_TIMEOUT_SECONDS,
        "keepalives": 1, "keepalives_idle": 2, "keepalives_interval": 1, "keepalives_count": 3,
        "tcp_user_timeout": TCP_USER_TIMEOUT_MS,
        "options": " ".join(f"-c {name}={round(seconds * 1_000)}" for name, seconds in limits.items()),
    }


def make_engine(database_url: str, *, application_name: str, pool_size: int = POOL_SIZE, pool_wait_seconds: float = POOL_WAIT_SECONDS,
                statement_timeout_seconds: float = STATEMENT_TIMEOUT_SECONDS, lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS,
                idle_in_transaction_seconds: float = IDLE_IN_TRANSACTION_SECONDS) -> sqlalchemy.Engine:
    """An engine with a pool that never grows; nothing is connected yet.

    A connection that the server ended while it lay in the pool is replaced at checkout. A checkout that finds no free
    connection within ``pool_wait_seconds`` raises ``sqlalchemy.exc.TimeoutError``. Made in the process that uses it, after fork.

    Raises:
        ConfigurationError: the URL cannot be used.
    """
    arguments = connect_arguments(application_name=application_name, statement_timeout_seconds=statement_timeout_seconds,
                                  lock_timeout_seconds=lock_timeout_seconds, idle_in_transaction_seconds=idle_in_transaction_seconds)
    engine = sqlalchemy.create_engine(parse_url(database_url), poolclass=pool.QueuePool, pool_size=pool_size, max_overflow=0,
                                      pool_timeout=pool_wait_seconds, pool_use_lifo=True, connect_args=arguments)
    event.listen(engine, "checkout", _refuse_dead_connection)
    return engine


def check_durable(connection: Any) -> None:
    """Refuse a database that would acknowledge before the disk has it.

    Args:
        connection: a psycopg2 connection (also one from ``engine.raw_connection()``).

    Raises:
        ConfigurationError: a setting of this server, database or role switches durability off.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, setting FROM pg_settings WHERE name = ANY (%s) AND setting = 'off' ORDER BY name", (list(DURABILITY),))
        off = [name for name, _ in cursor.fetchall()]
    connection.rollback()
    if off:
        raise ConfigurationError(f"this database has {', '.join(off)} switched off, so that a crash would lose what was acknowledged: switch it on")


def _refuse_dead_connection(connection: Any, _record: Any, _proxy: Any) -> None:
    """An idle connection has nothing to read, unless the server ended it: a look at the socket costs microseconds, a query 0.1 ms and more."""
    poller = select.poll()
    poller.register(connection.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
    if poller.poll(0):
        raise exc.DisconnectionError("the server ended this connection while it was idle")
