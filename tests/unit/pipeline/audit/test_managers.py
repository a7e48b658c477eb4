"""The audit of a manager's WAL and tables, on values."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from myqueue.protocol.chain import GENESIS, wal_chain
from myqueue.protocol.metadata_state import KEYS, MetadataState, state_digest, state_to_text
from pipeline.audit.managers import ManagerAudit, ManagerState, audit_one, check_fold, check_wal, compare
from pipeline.audit.metadata_fold import Metadata, fold

COMMANDS: list[dict[str, Any]] = [
    {"type": "init_cluster", "cluster_id": "c", "members": [{"node_id": 1, "url": "http://h:1", "disk_id": "d1"}]},
    {"type": "noop"},
    {"type": "add_broker", "disk_id": "b1", "host": "h", "port": 2, "database": {}},
    {"type": "create_topic", "topic": "t", "partitions": 2, "replication_factor": 1, "config": {}, "created_at": 5, "live_brokers": [1]},
    {"type": "register_consumers", "topics": ["t"], "start": "earliest", "created_at": 6},
]


def _state(node: str = "manager-1") -> ManagerState:
    """A sound manager that has applied all commands."""
    metadata, wal, chain = Metadata(), [], GENESIS
    for index, command in enumerate(COMMANDS, 1):
        chain = wal_chain(chain, index=index, term=1, command=command, client_id=None, client_seq=None)
        wal.append({"index": index, "term": 1, "command": copy.deepcopy(command), "client_id": None, "client_seq": None, "chain": chain})
        fold(metadata, index, command)
    raft = {"cluster_id": "c", "commit_index": len(wal), "applied_index": len(wal), "snapshot_index": 0, "snapshot_term": 0,
           "snapshot_chain": GENESIS}
    return ManagerState(node, "write", raft, wal, copy.deepcopy(metadata.tables))


def test_a_sound_manager_gives_nothing() -> None:
    """Neither its WAL nor its tables, nor the comparison with another one."""
    state = _state()
    assert ([], [], []) == (list(check_wal(state)), check_fold(state), compare([state, _state("manager-2")]))


def test_an_entry_above_applied_is_not_folded() -> None:
    """What is committed and not applied yet is no difference."""
    state = _state()
    state.raft["applied_index"] = 4
    state.tables["consumer"], state.tables["id_counter"] = {}, {key: row for key, row in state.tables["id_counter"].items() if key != ("consumer",)}
    assert [] == check_fold(state)


@pytest.mark.parametrize("lost", range(1, len(COMMANDS) + 1))
def test_a_missing_index_is_found(lost: int) -> None:
    """The first, one in the middle, and the last committed one."""
    state = _state()
    del state.wal[lost - 1]
    assert [("wal_gap", lost)] == [(finding.check, finding.lsn) for finding in check_wal(state)]


@pytest.mark.parametrize("index", range(1, len(COMMANDS) + 1))
def test_a_changed_command_is_found(index: int) -> None:
    """Only that index is told."""
    state = _state()
    state.wal[index - 1]["command"]["extra"] = 1
    assert [("wal_chain", index)] == [(finding.check, finding.lsn) for finding in check_wal(state)]


@pytest.mark.parametrize("index", range(1, len(COMMANDS)))
def test_a_changed_chain_is_told_from_a_changed_command(index: int) -> None:
    """The entry after it continues what the chain should be."""
    state = _state()
    state.wal[index - 1]["chain"] = b"\x07" * 32
    assert [(index, "its stored chain was changed")] == [(finding.lsn, finding.detail) for finding in check_wal(state)]


@pytest.mark.parametrize(("table", "key", "change", "said", "index"), [
    ("topic", (1,), {"config": {"x": 1}}, "topic topic_id=1: config is {'x': 1}, the WAL says {}", 4),
    ("partition", (1, 1), {"leader": 2}, "partition topic_id=1, partition=1: leader is 2, the WAL says 1", 4),
    ("broker", (1,), None, "broker broker_id=1: the row is missing", 3),
    ("member", (9,), {"node_id": 9}, "member node_id=9: the row comes from no command", -1),
    ("cluster", (), {"cluster_id": "z"}, "cluster : cluster_id is 'z', the WAL says 'c'", 1)])
def test_a_metadata_row_changed_by_hand_is_found(table: str, key: tuple, change: dict | None, said: str, index: int) -> None:
    """The table, the row, the column, and the index of the command that wrote it."""
    state = _state()
    if change is None:
        del state.tables[table][key]
    else:
        state.tables[table][key] = {**state.tables[table].get(key, {}), **change}
    assert [("wal_fold", index, said)] == [(finding.check, finding.lsn, finding.detail) for finding in check_fold(state)]


def test_a_command_that_is_not_known_is_said() -> None:
    """Nothing is claimed about what follows it."""
    state = _state()
    state.wal[1]["command"] = {"type": "later_invention"}
    assert [("wal_command", 2)] == [(finding.check, finding.lsn) for finding in check_fold(state)]


def test_managers_that_differ_are_found() -> None:
    """By their WALs at the same committed index, else by their tables at the same applied index."""
    other = _state("manager-2")
    other.wal[3]["chain"] = b"\x07" * 32
    assert [("wal_divergence", "manager-2", 4)] == [(f.check, f.node, f.lsn) for f in compare([_state(), other])]
    other = _state("manager-2")
    other.tables["topic"][(1,)]["name"] = "u"
    assert [("state_digest", "manager-2", 5)] == [(f.check, f.node, f.lsn) for f in compare([_state(), other])]
    other.raft["applied_index"] = 4
    assert [] == compare([_state(), other])


# --- behind snapshots ---


def _snapshot(wal: list[dict[str, Any]], index: int) -> dict[str, Any]:
    """As a manager keeps it, of what its WAL folds to at this index."""
    metadata = Metadata()
    for entry in wal[:index]:
        fold(metadata, entry["index"], entry["command"], entry["client_id"], entry["client_seq"])
    tables = {table: list(metadata.tables[table].values()) for table in KEYS if table != "client_session"}
    sessions = [{"client_id": client, "last_seq": seq, "last_index": at, "reply": {}} for client, (seq, at) in metadata.sessions.items()]
    state = MetadataState(index, 1, wal[index - 1]["chain"], metadata.tables["cluster"][()]["cluster_id"], {**tables, "client_session": sessions})
    text = state_to_text(state)
    return {"index": index, "term": 1, "chain": state.chain, "state": text, "digest": state_digest(text)}


def _compacted(node: str = "manager-1", *, start: int = 2, newer: int = 4) -> ManagerState:
    """A sound manager whose WAL begins behind a snapshot, and which holds a newer one."""
    state = _state(node)
    snapshots = [_snapshot(state.wal, index) for index in (start, newer)]
    raft = {**state.raft, "snapshot_index": start, "snapshot_term": 1, "snapshot_chain": snapshots[0]["chain"]}
    return ManagerState(node, state.role, raft, state.wal[start:], state.tables, snapshots)


def _found(state: ManagerState) -> list[tuple[str, int]]:
    audit = ManagerAudit()
    audit_one(state, audit)
    return [(finding.check, finding.lsn) for finding in audit.findings]


def _altered(snapshot: dict[str, Any], **changes: str) -> dict[str, Any]:
    """The state changed, and its digest with it."""
    text = snapshot["state"]
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return {**snapshot, "state": text, "digest": state_digest(text)}


def test_a_sound_manager_behind_a_snapshot_gives_nothing() -> None:
    """Alone, beside one that kept its whole WAL, and beside one whose WAL begins elsewhere; nothing is left out."""
    for state in (_compacted(), _compacted(start=4, newer=5)):
        audit = ManagerAudit()
        audit_one(state, audit)
        assert ([], []) == (audit.findings, audit.skipped)
        assert [] == compare([_state("manager-2"), state, _compacted("manager-3")])


def test_an_altered_snapshot_is_found() -> None:
    """By its digest; with a digest of its own by the fold; and the oldest one by what everything behind it says."""
    state = _compacted()
    state.snapshots[1]["state"] = state.snapshots[1]["state"].replace('"partition":1', '"partition":7')
    assert [("snapshot_digest", 4)] == _found(state)
    state = _compacted()
    state.snapshots[1] = _altered(state.snapshots[1], partition="partitiom")
    assert [("snapshot_digest", 4)] == _found(state)
    state = _compacted()
    state.snapshots[1] = _altered(state.snapshots[1], **{'"last_id":1': '"last_id":3'})
    assert [("snapshot_fold", 4)] == sorted(set(_found(state)))
    state = _compacted()
    state.snapshots[0] = _altered(state.snapshots[0], **{"http://h:1": "http://h:2"})
    assert {("snapshot_fold", 4), ("wal_fold", -1)} == set(_found(state))


def test_a_snapshot_altered_where_no_fold_can_tell_differs_from_the_others() -> None:
    """The answers in the sessions are known to the managers only."""
    states = _compacted(), _compacted("manager-2")
    for state, answer in zip(states, "yn", strict=True):
        session = f'"client_session":[{{"client_id":"c","last_index":1,"last_seq":1,"reply":"{answer}"}}]'
        state.snapshots[0] = _altered(state.snapshots[0], **{'"client_session":[]': session})
    assert [("snapshot_divergence", "manager-2", 2)] == [(f.check, f.node, f.lsn) for f in compare(states)]


def test_a_snapshot_that_is_missing_or_elsewhere_is_found() -> None:
    """Nothing is folded then, and that is said."""
    state = _compacted()
    del state.snapshots[0]
    audit = ManagerAudit()
    audit_one(state, audit)
    assert [("snapshot_missing", 2)] == [(finding.check, finding.lsn) for finding in audit.findings]
    assert [("manager-1", "fold of the WAL")] == [(skipped.node, skipped.what) for skipped in audit.skipped]
    state = _compacted()
    state.raft["snapshot_term"] = 7
    assert [("snapshot_digest", 2)] == _found(state)


def test_a_row_missing_behind_the_snapshot_is_found() -> None:
    """As in a WAL from the beginning: the first entry kept, and one in the middle."""
    for lost, index in ((0, 3), (1, 4)):
        state = _compacted()
        del state.wal[lost]
        assert [("wal_gap", index)] == _found(state)


def test_a_row_changed_by_hand_behind_the_snapshot_is_found() -> None:
    """One that the snapshot holds, and one that came after it."""
    state = _compacted()
    state.tables["member"][(1,)]["url"] = "http://evil"
    state.tables["consumer"][(1, 1)]["start"] = "latest"
    assert [("wal_fold", -1), ("wal_fold", 5)] == _found(state)


def test_a_forgotten_session_is_found() -> None:
    """A client that the WAL shows and the table does not."""
    state = _state()
    state.wal[4].update(client_id="c-1", client_seq=3)
    assert [("wal_fold", "client_session client_id=c-1: (last_seq, last_index) is None, the WAL says (3, 5)")] == [
        (finding.check, finding.detail) for finding in check_fold(state)]
