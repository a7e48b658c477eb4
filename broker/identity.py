"""Who this broker is, as its database says; remembered once it is registered, since it never changes then."""

from __future__ import annotations

from typing import Any

from db import broker_identity
from db.broker_identity import BrokerIdentity
from db.postgres_log import PostgresLogStore
from myqueue.errors import UnavailableError

from .service import Self


class Identity:
    """Safe to share between threads."""

    def __init__(self, store: PostgresLogStore, database: dict[str, Any]) -> None:
        self._store, self._database = store, database
        self._self: Self | None = None

    def load(self) -> BrokerIdentity:
        with self._store.transaction() as cursor:
            return broker_identity.load(cursor)

    def who(self) -> Self:
        """This broker and its disk. Raises UnavailableError before it is registered."""
        if self._self is None:
            known = self.load()
            if known.broker_id is None:
                raise UnavailableError("this broker is not registered with a manager yet")
            self._self = Self(known.broker_id, known.disk_id)
        return self._self

    def pair(self) -> tuple[int, str]:
        """Broker id and disk, as :meth:`who`."""
        known = self.who()
        return known.broker_id, known.disk_id

    def told(self) -> dict[str, Any]:
        """What managers and audits ask for."""
        with self._store.transaction() as cursor:
            known = broker_identity.load(cursor)
            system_identifier, timeline = broker_identity.load_server(cursor)
        return {"cluster_id": known.cluster_id, "broker_id": known.broker_id, "disk_id": known.disk_id, "system_identifier": system_identifier,
                "timeline": timeline, "life": known.life, "database": self._database}

    def ready(self) -> dict[str, Any]:
        """For /readyz: the database answers and the broker is registered. Raises UnavailableError."""
        known = self.load()
        if known.broker_id is None:
            raise UnavailableError("this broker is not registered with a manager yet")
        return {"broker_id": known.broker_id, "cluster_id": known.cluster_id}
