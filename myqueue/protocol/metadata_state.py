"""The metadata of a manager at one index of its WAL, as one text with one digest: what a snapshot holds.

Managers write it, send it to one that is far behind, and the audit reads it; so the spelling is said once. The text is the
canonical JSON of an object with ``format``, ``index``, ``term``, ``chain`` (of the WAL entry at the index), ``cluster_id`` and ``tables``: each
table's rows as objects by column, in the order of their keys. Equal logs fold to equal texts, byte by byte. The digest is
the SHA-256 of the text in UTF-8. Golden vector: tests/data/metadata_state.json.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import LogFaultError
from .chain import CHAIN_BYTES, canonical_json

FORMAT = 1
Row = dict[str, Any]
# Every table that applying a command may change, with its key. The order is one in which rows can be inserted: topics before what refers to them.
KEYS: Mapping[str, tuple[str, ...]] = {
    "id_counter": ("kind",), "member": ("node_id",), "broker": ("broker_id",), "topic": ("topic_id",), "partition": ("topic_id", "partition"),
    "producer": ("producer_id", "topic_id"), "consumer": ("consumer_id", "topic_id"), "client_session": ("client_id",),
    "consumer_group": ("group_id",), "group_member": ("member_id",)}
LATER = frozenset({"consumer_group", "group_member"})  # left out of the text while they are empty, so that older states keep their digests
LATER_COLUMNS: Mapping[str, frozenset[str]] = {"partition": frozenset({"wanted"})}  # likewise, of a row in which they are null


@dataclass(frozen=True, slots=True)
class MetadataState:
    """All that the WAL up to ``index`` folds to."""

    index: int
    term: int
    chain: bytes
    cluster_id: str | None
    tables: Mapping[str, list[Row]]


def state_to_text(state: MetadataState) -> str:
    """The one spelling of a state; its rows may come in any order."""
    tables = {table: _spelt(table, state.tables[table]) for table in KEYS if table not in LATER or state.tables[table]}
    return canonical_json({"format": FORMAT, "index": state.index, "term": state.term, "chain": state.chain.hex(),
                           "cluster_id": state.cluster_id, "tables": tables}).decode()


def state_from_text(text: str) -> MetadataState:
    """Raises LogFaultError where the text is none of a format that is known here."""
    try:
        body = json.loads(text)
        if body["format"] != FORMAT:
            raise LogFaultError(f"a metadata state of format {body['format']!r}: this program knows format {FORMAT}")
        chain = bytes.fromhex(body["chain"])
        if len(chain) != CHAIN_BYTES:
            raise ValueError("a chain has another length")
        tables = {table: _rows(table, body["tables"].get(table, ()) if table in LATER else body["tables"][table]) for table in KEYS}
        return MetadataState(int(body["index"]), int(body["term"]), chain, body["cluster_id"], tables)
    except (KeyError, TypeError, ValueError) as error:
        raise LogFaultError(f"a metadata state that cannot be read: {error!r}"[:200]) from None


def state_digest(text: str) -> bytes:
    """32 bytes; in SQL: ``sha256(convert_to(state, 'UTF8'))``."""
    return hashlib.sha256(text.encode()).digest()


def _spelt(table: str, rows: Iterable[Row]) -> list[Row]:
    later = LATER_COLUMNS.get(table, frozenset())
    ordered = sorted(rows, key=lambda row: tuple(row[name] for name in KEYS[table]))
    return [{name: value for name, value in row.items() if value is not None or name not in later} for row in ordered]


def _rows(table: str, rows: Iterable[Any]) -> list[Row]:
    rows = list(rows)
    if not all(isinstance(row, dict) and row.keys() >= set(KEYS[table]) for row in rows):
        raise ValueError("a row without its key")
    return [{**dict.fromkeys(LATER_COLUMNS.get(table, ())), **row} for row in rows]
