"""The audit of the managers: each WAL is checked and folded, and the fold compared with the metadata tables; then the managers with each other.

A WAL that was compacted is folded from the snapshot behind which it begins, and compared with a newer snapshot on the way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from myqueue.errors import MyQueueError, UnavailableError
from myqueue.protocol.chain import canonical_json, wal_chain

from ..cluster import Manager
from ..databases import Limits, rows_of, snapshot_cursor
from .findings import Finding, Skipped
from .metadata_fold import KEYS, Metadata, Row, UnknownCommandError, fold
from .snapshots import SESSIONS, SNAPSHOTS, Sessions, check_snapshots, compare_snapshots, metadata_of, session_differences, sessions_of, state_of

RAFT_STATE = "SELECT cluster_id, commit_index, applied_index, snapshot_index, snapshot_term, snapshot_chain FROM raft_state"
WAL = "SELECT index, term, command, client_id, client_seq, chain FROM wal WHERE index > %(after)s ORDER BY index"
TABLES = {
    "id_counter": "SELECT kind, last_id FROM id_counter",
    "member": "SELECT node_id, url, disk_id::text AS disk_id, voter FROM member",
    "broker": "SELECT broker_id, disk_id::text AS disk_id, host, port, status, database FROM broker",
    "topic": "SELECT topic_id, name, replication_factor, config, created_at FROM topic",
    "partition": "SELECT topic_id, partition, replication_factor, epoch, status, leader, voters, learners, wanted FROM partition",
    "producer": "SELECT producer_id, topic_id, created_at FROM producer",
    "consumer": "SELECT consumer_id, topic_id, start, created_at FROM consumer",
    "consumer_group": "SELECT group_id, name, generation, strategy, start, created_at FROM consumer_group",
    "group_member": "SELECT member_id, group_id, instance_id, topics, session_timeout_ms, wanted, owned, created_at FROM group_member",
}
DIFFERENCES_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class ManagerCoverage:
    """What was checked of one manager."""

    node: str
    role: str
    last_index: int
    applied_index: int
    rows: int
    digest: str  # of the metadata tables at applied_index


@dataclass(slots=True)
class ManagerAudit:
    """What the audit of the managers found."""

    managers: list[ManagerCoverage] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ManagerState:
    """A manager's database in one snapshot."""

    node: str
    role: str
    raft: Row
    wal: list[Row]
    tables: dict[str, dict[tuple, Row]]
    snapshots: list[Row] = field(default_factory=list)
    sessions: Sessions = field(default_factory=dict)


def audit_managers(managers: Sequence[Manager], limits: Limits) -> ManagerAudit:
    """Check every manager; one that cannot be reached is skipped and said."""
    audit, states = ManagerAudit(), []
    for manager in managers:
        node = f"manager-{manager.node_id}"
        try:
            states.append(read_state(manager, limits))
        except MyQueueError as error:
            audit.skipped.append(Skipped(node, "WAL and metadata", error.message))
    for state in states:
        audit_one(state, audit)
    told = {finding.node for finding in audit.findings}
    audit.findings += compare([state for state in states if state.node not in told])
    return audit


def read_state(manager: Manager, limits: Limits) -> ManagerState:
    """Raises UnavailableError where the database is not known or cannot be reached."""
    if manager.database is None:
        raise UnavailableError("the cluster does not say where its database is")
    with snapshot_cursor(manager.database, limits) as cursor:
        raft = rows_of(cursor, RAFT_STATE)[0]
        wal = rows_of(cursor, WAL, {"after": raft["snapshot_index"]})
        tables = {table: _by_key(table, rows_of(cursor, statement)) for table, statement in TABLES.items()}
        snapshots, sessions = rows_of(cursor, SNAPSHOTS), sessions_of(rows_of(cursor, SESSIONS))
    tables["cluster"] = {(): {"cluster_id": raft["cluster_id"]}} if raft["cluster_id"] is not None else {}
    return ManagerState(f"manager-{manager.node_id}", manager.role, raft, wal, tables, snapshots, sessions)


def _by_key(table: str, rows: Iterable[Row]) -> dict[tuple, Row]:
    return {tuple(row[name] for name in KEYS[table]): row for row in rows}


def audit_one(state: ManagerState, audit: ManagerAudit) -> None:
    """Check one manager by itself, and add what was found."""
    raft, damage, spoiled = state.raft, list(check_wal(state)), list(check_snapshots(state.node, state.raft, state.snapshots))
    audit.findings += damage + spoiled
    if damage:
        audit.skipped.append(Skipped(state.node, "fold of the WAL", "the WAL itself is damaged"))
    elif any(finding.lsn == raft["snapshot_index"] for finding in spoiled):
        audit.skipped.append(Skipped(state.node, "fold of the WAL", "the snapshot behind which it begins is damaged"))
    else:
        audit.findings += check_fold(state, leave_out={finding.lsn for finding in spoiled})
    audit.managers.append(ManagerCoverage(state.node, state.role, state.wal[-1]["index"] if state.wal else raft["snapshot_index"],
                                          raft["applied_index"], sum(map(len, state.tables.values())), digest(state.tables)))


def check_wal(state: ManagerState) -> Iterator[Finding]:
    """Indexes without gaps up to the committed one, and a chain that holds."""
    at, chain = state.raft["snapshot_index"], state.raft["snapshot_chain"]
    broken: dict[int, bytes] = {}  # index of an entry that does not fit → its chain recomputed
    changed_chains: set[int] = set()
    for entry in state.wal:
        if entry["index"] != at + 1:
            yield Finding("wal_gap", state.node, lsn=at + 1, detail=f"index {at + 1} to {entry['index'] - 1} of the WAL are missing")
        elif _chain_of(chain, entry) != entry["chain"]:
            if at in broken and _chain_of(broken[at], entry) == entry["chain"]:
                changed_chains.add(at)  # this one continues what the one before should say
            else:
                broken[entry["index"]] = _chain_of(chain, entry)
        at, chain = entry["index"], entry["chain"]
    if at < state.raft["commit_index"]:
        yield Finding("wal_gap", state.node, lsn=at + 1, detail=f"the WAL ends at {at}, committed is {state.raft['commit_index']}")
    for index in broken:
        yield Finding("wal_chain", state.node, lsn=index, detail="its stored chain was changed" if index in changed_chains
                      else "the chain recomputed from its command is another one")


def _chain_of(previous: bytes, entry: Mapping[str, Any]) -> bytes:
    return wal_chain(previous, index=entry["index"], term=entry["term"], command=entry["command"],
                     client_id=entry["client_id"], client_seq=entry["client_seq"])


def check_fold(state: ManagerState, *, leave_out: Collection[int] = ()) -> list[Finding]:
    """The tables against what the WAL up to the applied index folds to, from the snapshot behind which it begins.

    Args:
        leave_out: the indexes of snapshots that are known to be damaged.
    """
    snapshots = {row["index"]: row for row in state.snapshots if row["index"] not in leave_out}
    start = snapshots.pop(state.raft["snapshot_index"], None)
    metadata = metadata_of(state_of(start)) if start is not None else Metadata()
    found: list[Finding] = []
    for entry in state.wal:
        if entry["index"] > state.raft["applied_index"]:
            break
        try:
            fold(metadata, entry["index"], entry["command"], entry["client_id"], entry["client_seq"])
        except UnknownCommandError as error:
            return [*found, Finding("wal_command", state.node, lsn=entry["index"], detail=str(error))]
        if entry["index"] in snapshots:
            found += _snapshot_differences(state.node, metadata, snapshots[entry["index"]])
    differences = [Finding("wal_fold", state.node, lsn=metadata.written_at.get((table, key), -1), detail=difference)
                   for table in KEYS for key, difference in _differences(table, metadata.tables[table], state.tables[table])]
    differences += [Finding("wal_fold", state.node, detail=difference) for difference in session_differences(metadata.sessions, state.sessions)]
    return found + _few(differences, "wal_fold", state.node)


def _snapshot_differences(node: str, metadata: Metadata, row: Row) -> list[Finding]:
    kept = metadata_of(state_of(row))
    told = [difference for table in KEYS for _, difference in _differences(table, metadata.tables[table], kept.tables[table])]
    told += session_differences(metadata.sessions, kept.sessions)
    return _few([Finding("snapshot_fold", node, lsn=row["index"], detail=difference) for difference in told], "snapshot_fold", node)


def _few(found: list[Finding], check: str, node: str) -> list[Finding]:
    hidden = len(found) - DIFFERENCES_SHOWN_MAX
    return found if hidden <= 0 else [*found[:DIFFERENCES_SHOWN_MAX], Finding(check, node, detail=f"and {hidden} rows more")]


def _differences(table: str, expected: Mapping[tuple, Row], found: Mapping[tuple, Row]) -> Iterator[tuple[tuple, str]]:
    for key in sorted({*expected, *found}, key=repr):
        where = f"{table} " + ", ".join(f"{name}={value}" for name, value in zip(KEYS[table], key, strict=True))
        if key not in found:
            yield key, f"{where}: the row is missing"
        elif key not in expected:
            yield key, f"{where}: the row comes from no command"
        elif expected[key] != found[key]:
            columns = [name for name in expected[key] if expected[key][name] != found[key].get(name)]
            yield key, f"{where}: " + ", ".join(f"{name} is {found[key].get(name)!r}, the WAL says {expected[key][name]!r}" for name in columns)


def digest(tables: Mapping[str, Mapping[tuple, Row]]) -> str:
    """One digest of all metadata."""
    rows = {table: [tables[table][key] for key in sorted(tables[table])] for table in sorted(tables)}
    return hashlib.sha256(canonical_json(rows)).hexdigest()


def compare(states: Sequence[ManagerState]) -> list[Finding]:
    """The managers with the first of them: the same committed entries, and the same metadata at the same index."""
    found = []
    for other in states[1:]:
        first = states[0]
        committed = min(first.raft["commit_index"], other.raft["commit_index"])
        chains = {entry["index"]: entry["chain"] for entry in first.wal}
        different = [entry["index"] for entry in other.wal
                     if entry["index"] <= committed and chains.get(entry["index"], entry["chain"]) != entry["chain"]]
        if different:
            found.append(Finding("wal_divergence", other.node, lsn=different[0], detail=f"differs from {first.node} from index {different[0]} on"))
        elif first.raft["applied_index"] == other.raft["applied_index"] and digest(first.tables) != digest(other.tables):
            found.append(Finding("state_digest", other.node, lsn=other.raft["applied_index"], detail=f"differs from {first.node} at this index"))
        else:
            found += compare_snapshots(first.node, first.snapshots, other.node, other.snapshots)
    return found
