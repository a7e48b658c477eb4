"""Who a broker is: made with its database, completed when it registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from myqueue.errors import RefusedError

# Only one worker process of a node registers and sends heartbeats: the one whose session holds this lock.
ADVISORY_LOCK = 0x6D79_7175_6575_6662
TRY_LOCK = "SELECT pg_try_advisory_lock(%s)"
LOAD = "SELECT cluster_id, broker_id, disk_id::text, life FROM broker_identity"
LOAD_SERVER = """SELECT (SELECT system_identifier FROM pg_control_system())::text, (SELECT timeline_id FROM pg_control_checkpoint())"""
# Compare-and-set: the first registration stands.
REGISTER = """UPDATE broker_identity SET cluster_id = %(cluster_id)s, broker_id = %(broker_id)s
              WHERE (cluster_id IS NULL OR cluster_id = %(cluster_id)s) AND (broker_id IS NULL OR broker_id = %(broker_id)s)"""
RAISE_LIFE = "UPDATE broker_identity SET life = life + 1 RETURNING life"


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """``cluster_id`` and ``broker_id`` are None until a manager has registered this disk."""

    cluster_id: str | None
    broker_id: int | None
    disk_id: str
    life: int

    @property
    def registered(self) -> bool:
        return self.broker_id is not None


def load(cursor: Any) -> BrokerIdentity:
    cursor.execute(LOAD)
    return BrokerIdentity(*cursor.fetchone())


def load_server(cursor: Any) -> tuple[str, int]:
    """PostgreSQL's own identity: system identifier and timeline."""
    cursor.execute(LOAD_SERVER)
    return cursor.fetchone()


def register(cursor: Any, *, cluster_id: str, broker_id: int) -> None:
    """Keep what a manager answered. Raises RefusedError where this disk belongs to another cluster or broker, or no cluster was named."""
    if not cluster_id:
        raise RefusedError("a manager registered this broker and did not say of which cluster")
    cursor.execute(REGISTER, {"cluster_id": cluster_id, "broker_id": broker_id})
    if cursor.rowcount != 1:
        known = load(cursor)
        raise RefusedError(f"this database belongs to broker {known.broker_id} of cluster {known.cluster_id}, not to broker {broker_id} "
                           f"of cluster {cluster_id}")


def raise_life(cursor: Any) -> int:
    """The next life number, on disk."""
    cursor.execute(RAISE_LIFE)
    return cursor.fetchone()[0]


def try_lock(cursor: Any) -> bool:
    """Whether this session is now the one that speaks for the node. Kept until the session ends."""
    cursor.execute(TRY_LOCK, (ADVISORY_LOCK,))
    return bool(cursor.fetchone()[0])
