"""The audit of the managers' snapshots: what a WAL that does not begin at the first command is folded from.

A manager keeps the snapshot where its WAL begins and perhaps a newer one. The first is what the fold starts with; the second
must be what the fold comes to there. That the first is right as well, only other managers can say: at one index all have one digest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from myqueue.errors import LogFaultError
from myqueue.protocol.metadata_state import MetadataState, state_digest, state_from_text

from .findings import Finding
from .metadata_fold import KEYS, Metadata, Row

SNAPSHOTS = "SELECT index, term, chain, state, digest FROM snapshot ORDER BY index"
SESSIONS = "SELECT client_id, last_seq, last_index FROM client_session"
Sessions = dict[str, tuple[int, int]]


def check_snapshots(node: str, raft: Row, snapshots: Sequence[Row]) -> Iterator[Finding]:
    """Each matches its digest; one lies where the WAL begins and says the same of that entry."""
    start = raft["snapshot_index"]
    for row in snapshots:
        said = (row["term"], row["chain"]), (raft["snapshot_term"], raft["snapshot_chain"])
        trouble = _trouble(row) or ("raft_state has another term or chain of this entry" if row["index"] == start and said[0] != said[1] else "")
        if trouble:
            yield Finding("snapshot_digest", node, lsn=row["index"], detail=trouble)
    if start and all(row["index"] != start for row in snapshots):
        yield Finding("snapshot_missing", node, lsn=start, detail=f"the WAL begins behind index {start} and there is no snapshot of it")


def state_of(row: Row) -> MetadataState:
    """Raises LogFaultError where its text cannot be read."""
    return state_from_text(row["state"])


def metadata_of(state: MetadataState) -> Metadata:
    """A state as the fold goes on from it."""
    tables: dict[str, dict[tuple, Row]] = {table: {tuple(row[name] for name in names): dict(row) for row in state.tables[table]}
                                           for table, names in KEYS.items() if table != "cluster"}
    tables["cluster"] = {(): {"cluster_id": state.cluster_id}} if state.cluster_id is not None else {}
    return Metadata(tables=tables, written_at={}, sessions=sessions_of(state.tables["client_session"]))


def sessions_of(rows: Sequence[Row]) -> Sessions:
    return {row["client_id"]: (row["last_seq"], row["last_index"]) for row in rows}


def session_differences(expected: Sessions, found: Sessions) -> Iterator[str]:
    """What the fold and a manager say differently of the clients that it remembers."""
    for client in sorted({*expected, *found}):
        if expected.get(client) != found.get(client):
            yield f"client_session client_id={client}: (last_seq, last_index) is {found.get(client)}, the WAL says {expected.get(client)}"


def compare_snapshots(first: str, snapshots: Sequence[Row], node: str, others: Sequence[Row]) -> Iterator[Finding]:
    """Two managers' snapshots where they have one at the same index."""
    digests: Mapping[int, bytes] = {row["index"]: row["digest"] for row in snapshots}
    for row in others:
        if digests.get(row["index"], row["digest"]) != row["digest"]:
            yield Finding("snapshot_divergence", node, lsn=row["index"], detail=f"differs from the snapshot of {first} at this index")


def _trouble(row: Row) -> str:
    if state_digest(row["state"]) != row["digest"]:
        return "the state does not match its digest: one of them was changed"
    try:
        state = state_of(row)
    except LogFaultError as error:
        return error.message
    return "" if (state.index, state.term, state.chain) == (row["index"], row["term"], row["chain"]) else (
        f"it holds the state at index {state.index} of term {state.term}, or of another chain")
