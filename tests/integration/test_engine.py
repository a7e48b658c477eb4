"""Engines on a real server: limits hold, and a connection the server ended is replaced."""

from __future__ import annotations

from contextlib import closing

import psycopg2
import pytest
import sqlalchemy

from db.engine import libpq_url, make_engine


def test_every_connection_carries_its_limits(empty_database: str):
    """Statement, lock and idle-transaction time-outs and the name are set from the first statement on."""
    engine = make_engine(empty_database, application_name="limits", statement_timeout_seconds=7, lock_timeout_seconds=1.5)
    try:
        with engine.connect() as connection:
            shown = [connection.exec_driver_sql(f"SHOW {name}").scalar()
                     for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "application_name")]
        assert shown == ["7s", "1500ms", "5s", "limits"]
    finally:
        engine.dispose()


def test_a_full_pool_is_said_in_time(empty_database: str):
    """The pool does not grow: who finds no connection within the wait gets an error."""
    engine = make_engine(empty_database, application_name="tests", pool_size=1, pool_wait_seconds=0.1)
    try:
        with engine.connect(), pytest.raises(sqlalchemy.exc.TimeoutError):
            engine.connect()
    finally:
        engine.dispose()


@pytest.mark.parametrize("way", ["core", "raw"])
def test_a_connection_that_the_server_ended_is_replaced(empty_database: str, way: str):
    """After a restart of the server the pool's idle connections are dead: the next checkout does not notice."""
    engine = make_engine(empty_database, application_name="tests", pool_size=2)
    try:
        with engine.connect() as connection:
            pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar()
        with closing(psycopg2.connect(libpq_url(empty_database))) as other, other.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
            assert cursor.fetchone() == (True,)
        if way == "core":
            with engine.connect() as connection:
                assert connection.exec_driver_sql("SELECT 1").scalar() == 1
        else:
            with closing(engine.raw_connection()) as raw, raw.cursor() as cursor:
                cursor.execute("SELECT 1")
                assert cursor.fetchone() == (1,)
    finally:
        engine.dispose()
