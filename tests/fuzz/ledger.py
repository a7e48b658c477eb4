"""What was accepted, and whether just that is there: messages by partition, a topic that nobody touched, and the databases' schemas."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any
from urllib.parse import unquote

import psycopg2

from myqueue.errors import PartlyStoredError, UnknownTopicError
from myqueue.protocol import routes
from myqueue.supervisor import Cluster

from .rules import parts_of
from .wire import NATIVE, PARTITION, QUEUE, Client, Got, Sent

# Tables with their columns, constraints, indexes and triggers, views and functions. Segments come and go with topics, and are left out.
SCHEMA = """
WITH kept AS (SELECT c.oid, c.relname, c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
              WHERE n.nspname = 'public' AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = c.oid)
                AND NOT EXISTS (SELECT FROM pg_index i JOIN pg_inherits h ON h.inhrelid = i.indrelid WHERE i.indexrelid = c.oid))
SELECT 'column', relname, attname, format_type(atttypid, atttypmod), attnotnull::text FROM kept JOIN pg_attribute ON attrelid = kept.oid
 WHERE attnum > 0 AND NOT attisdropped
UNION ALL SELECT 'relation', relname, relkind::text, '', '' FROM kept
UNION ALL SELECT 'constraint', relname, conname, pg_get_constraintdef(k.oid), '' FROM kept JOIN pg_constraint k ON conrelid = kept.oid
UNION ALL SELECT 'view', relname, '', pg_get_viewdef(oid), '' FROM kept WHERE relkind = 'v'
UNION ALL SELECT 'function', proname, '', md5(prosrc), '' FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'public'
ORDER BY 1, 2, 3, 4, 5
"""


class Ledger:
    """Counts what was acknowledged, answer by answer."""

    def __init__(self) -> None:
        self._accepted: Counter[tuple[str, int]] = Counter()

    def note(self, sent: Sent, got: Got) -> None:
        """Take an answer into account; those of framings too, which may hold a whole produce."""
        body = got.json
        if sent.operation == "produce_to_topic" and got.status == PartlyStoredError.status:
            self._accepted.update({(topic_in(sent), part["partition"]): part["record_count"] for part in parts_of(body) if "base_offset" in part})
        if got.status >= 300 or not isinstance(body, dict):
            return
        if "base_offset" in body and not body["duplicate"]:
            self._accepted[(body["topic"], body["partition"])] += body["record_count"]
        elif sent.operation == "produce_to_topic":
            self._accepted.update({(body["topic"], part["partition"]): part["record_count"] for part in body["partitions"]})
        elif sent.face in (QUEUE, PARTITION) and sent.method == "POST" and "offset" in body and "timestamp" not in body:
            assert sent.topic is not None, f"{sent} was accepted without a topic"
            self._accepted[(sent.topic, body["partition_id"])] += 1
        elif sent.operation == "delete_topic":
            self.forget(body["topic"])

    def forget(self, topic: str) -> None:
        """The topic is deleted: a new one of its name begins at 0."""
        for key in [key for key in self._accepted if key[0] == topic]:
            del self._accepted[key]

    def differences(self, client: Client, topics: list[str]) -> list[str]:
        """Partitions that do not hold just what was accepted."""
        found = []
        for topic in topics:
            told = client.ask(_get(routes.TOPIC.format(topic=topic))).json
            for partition in range(told["partitions"]):
                state = client.ask(_get(routes.PARTITION.format(topic=topic, partition=partition))).json
                if state.get("end_offset") != self._accepted[(topic, partition)]:
                    found.append(f"{topic}/{partition}: {self._accepted[(topic, partition)]} messages were accepted, {state}")
        return found

    @property
    def total(self) -> int:
        return sum(self._accepted.values())


def topic_in(sent: Sent) -> str:
    """The topic that a request's path names."""
    return unquote(sent.path.removeprefix("/v1/topics/").partition("/")[0])


def topics_of(client: Client) -> list[str]:
    return [one["topic"] for one in client.ask(_get(routes.TOPICS + "?fresh=true")).json["topics"]]


def delete(client: Client, topic: str) -> None:
    """The topic is gone when this returns. Raises AssertionError."""
    got = client.ask(Sent(NATIVE, "delete_topic", "DELETE", routes.TOPIC.format(topic=topic)))
    assert got.status == 200 or got.json["error"]["code"] == UnknownTopicError.code, got


def call(client: Client, method: str, path: str, body: bytes = b"") -> Any:
    """The JSON of a call that must succeed. Raises AssertionError."""
    got = client.ask(Sent(QUEUE, f"{method} {path}", method, path, {"Content-Type": "application/json"} if body else {}, body))
    assert got.status < 300, f"{method} {path}: {got}"
    return got.json


def schemas_of(cluster: Cluster) -> dict[str, list[tuple]]:
    """The schema of each node's database."""
    found = {}
    for node in cluster.status()["nodes"]:
        if node.get("database"):
            at = cluster.node(node["name"])["database"]
            with contextlib.closing(psycopg2.connect(host=at["host"], port=at["port"], dbname=at["name"], user=at["user"],
                                                     passfile=str(cluster.folder.pgpass_file), connect_timeout=5)) as connection, \
                    connection.cursor() as cursor:
                cursor.execute(SCHEMA)
                found[node["name"]] = cursor.fetchall()
    return found


def _get(target: str) -> Sent:
    return Sent(NATIVE, "look", "GET", target)
