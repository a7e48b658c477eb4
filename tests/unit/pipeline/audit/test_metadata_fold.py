"""The fold of the WAL's commands, apart from the managers' own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.audit.metadata_fold import SESSION_KEPT_ENTRIES, Metadata, UnknownCommandError, fold

GOLDEN = json.loads((Path(__file__).parents[3] / "data" / "commands.json").read_text(encoding="utf-8"))
BROKER = {"type": "add_broker", "disk_id": "d", "host": "h", "port": 1, "database": {}}
TOPIC = {"type": "create_topic", "topic": "t", "partitions": 3, "replication_factor": 1, "config": {}, "created_at": 5, "live_brokers": [1]}


def test_the_golden_commands_fold_to_the_golden_tables() -> None:
    """The log that the managers' own apply is held to gives the same tables here."""
    metadata = Metadata()
    for entry in GOLDEN[:-1]:
        fold(metadata, entry["index"], entry["command"])
    golden = GOLDEN[-1]["tables"]
    golden["cluster"] = [{"cluster_id": row["cluster_id"]} for row in golden.pop("raft_state")]
    found = {table: sorted(rows.values(), key=lambda row: json.dumps(row, sort_keys=True)) for table, rows in metadata.tables.items()}
    assert {table: sorted(rows, key=lambda row: json.dumps(row, sort_keys=True)) for table, rows in golden.items()} == found


def test_a_repeated_command_of_a_client_is_applied_once() -> None:
    """The same sequence again, or a lower one, changes nothing."""
    metadata = Metadata()
    fold(metadata, 1, BROKER, "c", 7)
    fold(metadata, 2, {**BROKER, "disk_id": "e"}, "c", 7)
    fold(metadata, 3, {**BROKER, "disk_id": "f"}, "c", 6)
    assert ["d"] == [row["disk_id"] for row in metadata.tables["broker"].values()]


def test_a_client_is_forgotten_in_the_end() -> None:
    """After so many entries without it, its sequence is new again."""
    metadata = Metadata()
    fold(metadata, 1, BROKER, "c", 7)
    fold(metadata, SESSION_KEPT_ENTRIES + 1_000, {"type": "noop"})
    fold(metadata, SESSION_KEPT_ENTRIES + 1_001, {**BROKER, "disk_id": "e"}, "c", 7)
    assert 2 == len(metadata.tables["broker"])


def test_a_refused_command_changes_nothing() -> None:
    """No id is used up by it, not even where it fails half way."""
    metadata = Metadata()
    for index, command in enumerate([BROKER, TOPIC, TOPIC, {**TOPIC, "topic": "u", "live_brokers": [9]}, {**TOPIC, "topic": "no/name"},
                                     {"type": "register_consumers", "topics": ["t", "nowhere"]}], 1):
        fold(metadata, index, command)
    counters = {kind: row["last_id"] for (kind,), row in metadata.tables["id_counter"].items()}
    assert ({"broker": 1, "topic": 1}, [(1,)], {}) == (counters, list(metadata.tables["topic"]), metadata.tables["consumer"])


def test_a_deleted_topic_takes_its_rows_with_it_and_keeps_its_id() -> None:
    """A topic of the same name has a new identity."""
    metadata = Metadata()
    register, delete = {"type": "register_producers", "topics": ["t"]}, {"type": "delete_topic", "topic": "t"}
    for index, command in enumerate([BROKER, TOPIC, register, delete, TOPIC], 1):
        fold(metadata, index, command)
    assert ([(2,)], [(2, 0), (2, 1), (2, 2)], {}) == (list(metadata.tables["topic"]), list(metadata.tables["partition"]), metadata.tables["producer"])


def test_an_unknown_command_is_an_error() -> None:
    """It is not passed over."""
    with pytest.raises(UnknownCommandError, match="later"):
        fold(Metadata(), 1, {"type": "later"})
