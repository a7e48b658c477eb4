from __future__ import annotations

import json

import pytest

from db.replication import AppendReply, AppendRequest, Hint, Refusal
from db.wal import WalEntry
from manager.node.messages import append_from_json, append_to_json, reply_from_json, reply_to_json
from manager.raft.messages import Append
from myqueue.errors import BadRequestError

ENTRY = WalEntry(4, 1, {"type": "noop"}, "client", 7, b"\x01" * 32)
NAMELESS = WalEntry(5, 1, {"type": "noop"}, None, None, b"\x02" * 32)
REQUEST = Append(2, AppendRequest(epoch=1, position=3, prev_epoch=1, entries=(ENTRY, NAMELESS), commit=2, round=9), {"disk": 7})


def test_a_request_comes_back_equal():
    assert append_from_json(json.loads(json.dumps(append_to_json(REQUEST)))) == REQUEST


@pytest.mark.parametrize("reply", [
    AppendReply(1, "disk", 3, 9, matched=5, life=7), AppendReply(2, "disk", 3, 9, refusal=Refusal.STALE_EPOCH),
    AppendReply(1, "disk", 3, 0, refusal=Refusal.NO_MATCH, hint=Hint(2, 1), counts=False)])
def test_a_reply_comes_back_equal(reply):
    assert reply_from_json(json.loads(json.dumps(reply_to_json(reply)))) == reply


@pytest.mark.parametrize("change", [
    {"leader": None}, {"term": "1"}, {"term": -1}, {"term": True}, {"position": None}, {"entries": 5}, {"entries": [{}]}, {"entries": [None]},
    {"entries": [{"term": 1, "command": [], "client_id": None, "client_seq": None, "chain": "00" * 32}]},
    {"entries": [{"term": 1, "command": {}, "client_id": None, "client_seq": None, "chain": "00"}]},
    {"entries": [{"term": 1, "command": {}, "client_id": None, "client_seq": None, "chain": "zz" * 32}]},
])
def test_what_is_not_well_formed_is_refused(change):
    with pytest.raises(BadRequestError):
        append_from_json({**append_to_json(REQUEST), **change})


@pytest.mark.parametrize("body", [None, [], {}, {"term": 1}])
def test_what_is_no_message_is_refused(body):
    for read in (append_from_json, reply_from_json):
        with pytest.raises(BadRequestError):
            read(body)
