"""Commands ⇄ JSON, and the golden vectors: what a WAL of today holds is read and folded the same for ever."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from manager.cluster import commands
from manager.cluster.memory import MemoryMetadata
from manager.cluster.state import apply
from myqueue.errors import BadRequestError
from myqueue.protocol.chain import GENESIS, wal_chain
from tests.support.metadata import LOG

GOLDEN = Path(__file__).parents[3] / "data" / "commands.json"


def vectors() -> list[dict]:
    """The log as a WAL would hold it, with the answer of each command and the tables that it leaves."""
    view, chain, lines = MemoryMetadata(), GENESIS, []
    for index, command in enumerate(LOG, 1):
        body = commands.to_json(command)
        chain = wal_chain(chain, index=index, term=1, command=body, client_id="golden", client_seq=index)
        change = apply(view, command)
        view.write(change.changes)
        lines.append({"index": index, "command": body, "chain": chain.hex(), "reply": change.reply})
    tables = {table: sorted(rows.values(), key=lambda row: json.dumps(row, sort_keys=True)) for table, rows in sorted(view.tables.items())}
    return [*lines, {"tables": tables}]


def test_golden_vectors():
    """JSON form, chain, answers and final tables of a fixed log never change silently."""
    assert json.loads(GOLDEN.read_text()) == json.loads(json.dumps(vectors()))


@pytest.mark.parametrize("command", LOG, ids=lambda command: command.TYPE)
def test_round_trip(command):
    """Every command comes back equal from its JSON, also through a JSON text."""
    assert commands.from_json(json.loads(json.dumps(commands.to_json(command)))) == command


def test_every_type_is_in_the_golden_log():
    assert set(commands.BY_TYPE.values()) == {type(command) for command in LOG}


@pytest.mark.parametrize(("body", "message"), [
    (None, "there is no such command"),
    ({"type": "drop_everything"}, "there is no such command"),
    ({"type": ["noop"]}, "there is no such command"),
    ({"type": "noop", "extra": 1}, "no field extra"),
    ({"type": "remove_broker"}, "missing broker_id"),
    ({"type": "remove_broker", "broker_id": True}, "must be of type int"),
    ({"type": "remove_broker", "broker_id": "1"}, "must be of type int"),
    ({"type": "create_topic", "topic": "x", "live_brokers": 1}, "must be a list"),
    ({"type": "create_topic", "topic": "x", "live_brokers": ["1"]}, "must be of type int"),
    ({"type": "init_cluster", "cluster_id": "x", "members": [1]}, "must be an object"),
    ({"type": "init_cluster", "cluster_id": "x", "members": [{"node_id": 1}]}, "missing disk_id, url"),
])
def test_what_is_not_a_command_is_refused(body, message):
    with pytest.raises(BadRequestError, match=message):
        commands.from_json(body)


if __name__ == "__main__":  # rewrites the vectors: python -m tests.unit.manager.cluster.test_commands
    GOLDEN.write_text(json.dumps(vectors(), indent=1) + "\n")
