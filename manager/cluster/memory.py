"""The metadata tables as dictionaries: for folding a log without a database, and the twin that the SQL is tested against."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from manager.cluster.draft import Delete, Put, Row

# What refers to a topic goes with it, as ON DELETE CASCADE does in SQL.
_OF_TOPIC = ("partition", "producer", "consumer")


class MemoryMetadata:
    """A MetadataView that can also carry changes out."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[tuple, Row]] = {}

    def get(self, table: str, **key: Any) -> Row | None:
        return self.tables.get(table, {}).get(_identity(key))

    def find(self, table: str, **equals: Any) -> list[Row]:
        return [row for row in self.tables.get(table, {}).values() if all(row[name] == value for name, value in equals.items())]

    def leader_counts(self) -> Mapping[int, int]:
        return Counter(row["leader"] for row in self.find("partition") if row["leader"] is not None)

    def replica_counts(self) -> Mapping[int, int]:
        return Counter(int(broker_id) for row in self.find("partition") for broker_id in row["voters"])

    def write(self, changes: Iterable[Put | Delete]) -> None:
        for change in changes:
            table = self.tables.setdefault(change.table, {})
            if isinstance(change, Put):
                table[_identity(change.key)] = {**change.key, **change.values}
            else:
                table.pop(_identity(change.key), None)
                if change.table == "topic":
                    self._cascade(change.key["topic_id"])

    def _cascade(self, topic_id: int) -> None:
        for name in _OF_TOPIC:
            rows = self.tables.get(name, {})
            self.tables[name] = {key: row for key, row in rows.items() if row["topic_id"] != topic_id}


def _identity(key: Mapping[str, Any]) -> tuple:
    return tuple(sorted(key.items()))
