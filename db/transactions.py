"""A transaction on a raw cursor, with the driver's errors turned into ours: the one door between services and psycopg2."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg2
import sqlalchemy
from sqlalchemy import exc

from myqueue.errors import OutcomeUnknownError, OverloadedError, UnavailableError

# The server or the way to it is at fault, or something took too long: nothing of the transaction was stored.
TRANSIENT = (psycopg2.OperationalError, psycopg2.InterfaceError, psycopg2.InternalError)


@contextmanager
def transaction(engine: sqlalchemy.Engine, *, durable: bool = True) -> Iterator[Any]:
    """A cursor in a transaction that is committed when the block ends and rolled back when it raises.

    When this returns, what was written is on disk; with ``durable=False`` (soft state only) it may be lost in a crash of
    the server.

    Raises:
        OverloadedError: no connection of the pool was free in time; nothing was done.
        UnavailableError: the database cannot be reached, or a lock or statement took too long; nothing was done.
        OutcomeUnknownError: the connection broke during COMMIT: look again before answering anybody.
    """
    connection = _checkout(engine)
    broken = False
    try:
        try:
            with connection.cursor() as cursor:
                if not durable:
                    cursor.execute("SET LOCAL synchronous_commit = off")
                yield cursor
        except TRANSIENT as error:
            broken = True
            raise UnavailableError(f"the database cannot answer now: {_reason(error)}") from error
        try:
            connection.commit()
        except TRANSIENT as error:
            broken = True
            raise OutcomeUnknownError(f"the database's answer to a COMMIT was lost: {_reason(error)}") from error
    except BaseException:
        if broken:
            connection.invalidate()  # closing it ends the transaction
        else:
            _rollback(connection)
        raise
    finally:
        connection.close()


def _checkout(engine: sqlalchemy.Engine) -> Any:
    try:
        return engine.raw_connection()
    except exc.TimeoutError:
        raise OverloadedError("no database connection was free in time; nothing was done") from None
    except (*TRANSIENT, exc.SQLAlchemyError) as error:
        raise UnavailableError(f"the database cannot be reached: {_reason(error)}") from error


def _rollback(connection: Any) -> None:
    try:
        connection.rollback()
    except TRANSIENT:
        connection.invalidate()


def _reason(error: Exception) -> str:
    """What may be shown: the kind of fault, never the text, which may hold a statement or a URL."""
    return type(error).__name__
