"""The JSON of votes and snapshots."""

from __future__ import annotations

import json

import pytest

from db.replication import OfferedStart
from manager.raft import messages
from manager.raft.messages import InstallSnapshot, VoteReply, VoteRequest
from myqueue.errors import BadRequestError


@pytest.mark.parametrize(("name", "message"), [
    ("vote", VoteRequest(3, 2, 1, 9, pre=True, disk_id="d2", life=7, lives={"d1": 3})),
    ("vote_reply", VoteReply(3, 4, False, True, "d2", life=7)),
    ("snapshot", InstallSnapshot(3, 1, OfferedStart(9, 2, bytes(range(32))), {"topics": []}, round=4)),
])
def test_what_is_written_is_read_back(name: str, message: object) -> None:
    """Through real JSON."""
    text = json.dumps(getattr(messages, f"{name}_to_json")(message))
    assert getattr(messages, f"{name}_from_json")(json.loads(text)) == message


GOOD = {"term": 3, "candidate": 2, "last_term": 1, "last_index": 9, "pre": True, "disk_id": "d2", "life": 7, "lives": {}}


@pytest.mark.parametrize("body", [None, [], {}, {**GOOD, "term": "3"}, {**GOOD, "term": -1}, {**GOOD, "term": 2**63}, {**GOOD, "term": True},
                                  {**GOOD, "term": 1.0}, {**GOOD, "pre": 1}, {**GOOD, "life": -1},
                                  {**GOOD, "lives": {"d1": -1}}, {**GOOD, "lives": 1}])
def test_anything_else_is_a_bad_request(body: object) -> None:
    """Data from outside is checked where it comes in."""
    with pytest.raises(BadRequestError):
        messages.vote_from_json(body)


def test_a_snapshots_chain_has_its_length() -> None:
    """A cut digest would be stored as the start of a log."""
    body = messages.snapshot_to_json(InstallSnapshot(3, 1, OfferedStart(9, 2, bytes(31)), {}))
    with pytest.raises(BadRequestError):
        messages.snapshot_from_json(body)
