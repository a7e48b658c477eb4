"""A state on the wire: what comes back is what was sent, and anything else is refused."""

from __future__ import annotations

import base64
import json
import zlib

import pytest

from db.replication import OfferedStart
from db.snapshots import Snapshot
from manager.node import snapshots
from manager.raft.messages import InstallSnapshot
from myqueue.errors import BadRequestError, LogFaultError, TooLargeError
from myqueue.protocol.metadata_state import KEYS, MetadataState


def offer(index: int = 7) -> InstallSnapshot:
    tables = {**{table: [] for table in KEYS}, "id_counter": [{"kind": "ü", "last_id": 1}]}
    snapshot = Snapshot.of(MetadataState(index, 2, bytes(range(32)), "c", tables))
    return InstallSnapshot(3, 1, OfferedStart(7, 2, bytes(range(32))), snapshot, round=9)


def body() -> dict:
    return json.loads(json.dumps(snapshots.offer_to_json(offer())))


def test_round_trip() -> None:
    assert offer() == snapshots.offer_from_json(body())
    assert "c" == snapshots.offer_from_json(body()).state.checked().cluster_id


@pytest.mark.parametrize("damage", [
    {"deflated": "!"}, {"deflated": base64.b64encode(b"no zlib").decode()}, {"deflated": None}, {"digest": "00"}, {"digest": "zz"},
    {"deflated": base64.b64encode(zlib.compress(b"\xff")).decode()}, {"deflated": base64.b64encode(zlib.compress(b"{}")[:-1]).decode()},
    {"deflated": base64.b64encode(zlib.compress(b"{}")).decode()}])
def test_a_damaged_state_is_refused_before_anything_is_locked(damage: dict) -> None:
    whole = body()
    with pytest.raises(BadRequestError):
        snapshots.offer_from_json({**whole, "state": {**whole["state"], **damage}})


def test_a_state_that_is_no_object_is_refused() -> None:
    for state in (None, [], "x", {}):
        with pytest.raises(BadRequestError):
            snapshots.offer_from_json({**body(), "state": state})


def test_a_state_of_another_index_is_refused_when_it_is_taken() -> None:
    """Its digest is right, its place is not."""
    with pytest.raises(LogFaultError, match="holds the state at 8"):
        Snapshot(7, 2, bytes(range(32)), offer(8).state.state, offer(8).state.digest).checked()


def test_what_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither sent nor taken."""
    whole = body()
    monkeypatch.setattr(snapshots, "STATE_BYTES_MAX", 10)
    with pytest.raises(BadRequestError, match="too large"):
        snapshots.offer_from_json(whole)
    with pytest.raises(TooLargeError, match="does not fit"):
        snapshots.offer_to_json(offer())
