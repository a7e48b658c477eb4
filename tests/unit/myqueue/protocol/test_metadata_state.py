"""The text of a manager's metadata at one index: one spelling, one digest, the same for ever."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from manager.cluster.commands import Command
from manager.cluster.memory import MemoryMetadata
from manager.cluster.state import apply
from myqueue.errors import LogFaultError
from myqueue.protocol.metadata_state import FORMAT, KEYS, MetadataState, state_digest, state_from_text, state_to_text
from tests.support.metadata import LOG

GOLDEN = Path(__file__).parents[3] / "data" / "metadata_state.json"
SESSIONS = [{"client_id": name, "last_seq": number, "reply": {"result": {"topic": "ü"}}, "last_index": number}
            for number, name in enumerate("zäaZ", 1)]


BEFORE_GROUPS = next(place for place, command in enumerate(LOG) if command.TYPE == "join_group")
TO_LAST_MOVE = max(place for place, command in enumerate(LOG) if command.TYPE == "move_partitions") + 1
BEFORE_MOVES = next(place for place, command in enumerate(LOG) if command.TYPE == "move_partitions")


def state(log: list[Command] = LOG) -> MetadataState:
    """What the golden log of commands folds to, with some sessions."""
    view = MemoryMetadata()
    for command in log:
        view.write(apply(view, command).changes)
    tables = {table: list(view.tables.get(table, {}).values()) for table in KEYS}
    return MetadataState(len(log), 3, bytes(range(32)), LOG[0].cluster_id, {**tables, "client_session": SESSIONS})


def vector(log: list[Command]) -> dict[str, str]:
    text = state_to_text(state(log))
    return {"state": text, "digest": state_digest(text).hex()}


def test_golden_vector() -> None:
    """Text and digest of a fixed state never change silently."""
    assert json.loads(GOLDEN.read_text(encoding="utf-8"))["with_moves"] == vector(LOG[:TO_LAST_MOVE])


def test_a_state_without_moves_is_spelt_as_before_there_were_any() -> None:
    """The column of a row is left out where it is null, and null where it is left out."""
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))["all"]
    assert golden == vector(LOG[:BEFORE_MOVES])
    assert {row["wanted"] for row in state_from_text(golden["state"]).tables["partition"]} == {None}
    moving = [row["wanted"] for row in state_from_text(vector(LOG)["state"]).tables["partition"] if row["wanted"] is not None]
    assert moving == [row["wanted"] for row in state().tables["partition"] if row["wanted"] is not None] != []


def test_a_state_without_groups_is_spelt_as_before_there_were_any() -> None:
    """So managers of both versions, and an audit of old snapshots, find equal digests."""
    golden, text = json.loads(GOLDEN.read_text(encoding="utf-8"))["before_groups"], state_to_text(state(LOG[:BEFORE_GROUPS]))
    assert golden == {"state": text, "digest": state_digest(text).hex()}
    assert state_from_text(text).tables["consumer_group"] == []


def test_the_order_of_rows_and_columns_does_not_matter() -> None:
    known = state()
    shuffled = {table: [dict(reversed(row.items())) for row in reversed(rows)] for table, rows in reversed(known.tables.items())}
    assert state_to_text(known) == state_to_text(MetadataState(known.index, known.term, known.chain, known.cluster_id, shuffled))


def test_round_trip() -> None:
    """The same state again, its rows in the order of their keys; and the same text of that."""
    known, text = state(), state_to_text(state())
    again = state_from_text(text)
    assert text == state_to_text(again)
    assert (known.index, known.term, known.chain, known.cluster_id) == (again.index, again.term, again.chain, again.cluster_id)
    assert ["Z", "a", "z", "ä"] == [row["client_id"] for row in again.tables["client_session"]]


def test_everything_in_it_is_digested() -> None:
    """Index, term, chain and every row: another one is another digest."""
    known = state()
    others = [MetadataState(known.index + 1, known.term, known.chain, known.cluster_id, known.tables),
              MetadataState(known.index, known.term + 1, known.chain, known.cluster_id, known.tables),
              MetadataState(known.index, known.term, bytes(32), known.cluster_id, known.tables),
              MetadataState(known.index, known.term, known.chain, None, known.tables)]
    others += [MetadataState(known.index, known.term, known.chain, known.cluster_id, {**known.tables, table: rows[1:]})
               for table, rows in known.tables.items()]
    digests = {state_digest(state_to_text(one)) for one in [known, *others]}
    assert 1 + len(others) == len(digests)


@pytest.mark.parametrize(("text", "said"), [
    ("", "cannot be read"), ("[]", "cannot be read"), ("{}", "cannot be read"), ('{"format":2}', "of format 2: this program knows format 1"),
    (state_to_text(state()).replace('"chain":"00', '"chain":"'), "cannot be read"),
    (state_to_text(state()).replace('"id_counter"', '"counter"'), "cannot be read"),
    (state_to_text(state()).replace('"topic_id":1', '"topicid":1'), "cannot be read")])
def test_what_is_no_state_is_refused(text: str, said: str) -> None:
    assert FORMAT == 1
    with pytest.raises(LogFaultError, match=said):
        state_from_text(text)


if __name__ == "__main__":  # rewrites the vector: python -m tests.unit.myqueue.protocol.test_metadata_state
    GOLDEN.write_text(json.dumps({"before_groups": vector(LOG[:BEFORE_GROUPS]), "all": vector(LOG[:BEFORE_MOVES]), "with_moves": vector(LOG)},
                                 indent=1) + "\n", encoding="utf-8")
