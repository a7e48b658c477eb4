"""Membership changes on their way from a worker process to the one driver of a manager, and the answers. Soft state: lost ones are asked again."""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple

import psycopg2.extras
import sqlalchemy

from db.transactions import transaction

KEPT_SECONDS = 60.0
PENDING_MAX = 100
PUT = "INSERT INTO member_request (request_id, command) VALUES (%s, %s)"
FORGET_OLD = "DELETE FROM member_request WHERE asked_at < clock_timestamp() - make_interval(secs => %s)"
PENDING = "SELECT request_id::text, command FROM member_request WHERE answer IS NULL ORDER BY asked_at LIMIT %s"
ANSWER = "UPDATE member_request SET answer = %s WHERE request_id = %s"
LOOK = "SELECT answer FROM member_request WHERE request_id = %s"
REMOVE = "DELETE FROM member_request WHERE request_id = %s"


class MemberRequest(NamedTuple):
    request_id: str
    command: dict[str, Any]


class MemberRequestStore:
    """The requests of one manager's processes."""

    def __init__(self, engine: sqlalchemy.Engine) -> None:
        self._engine = engine

    def put(self, command: dict[str, Any]) -> str:
        """Ask for a command; the request's id."""
        request_id = str(uuid.uuid4())
        with transaction(self._engine, durable=False) as cursor:
            cursor.execute(PUT, (request_id, psycopg2.extras.Json(command)))
        return request_id

    def pending(self) -> list[MemberRequest]:
        """What waits for an answer, oldest first; what nobody can wait for any more is dropped."""
        with transaction(self._engine, durable=False) as cursor:
            cursor.execute(FORGET_OLD, (KEPT_SECONDS,))
            cursor.execute(PENDING, (PENDING_MAX,))
            return [MemberRequest(*row) for row in cursor.fetchall()]

    def answer(self, request_id: str, answer: dict[str, Any]) -> None:
        with transaction(self._engine, durable=False) as cursor:
            cursor.execute(ANSWER, (psycopg2.extras.Json(answer), request_id))

    def look(self, request_id: str) -> dict[str, Any] | None:
        """The answer, if it is there."""
        with transaction(self._engine) as cursor:
            cursor.execute(LOOK, (request_id,))
            row = cursor.fetchone()
            return row[0] if row else None

    def remove(self, request_id: str) -> None:
        """Nobody waits for it any more."""
        with transaction(self._engine, durable=False) as cursor:
            cursor.execute(REMOVE, (request_id,))
