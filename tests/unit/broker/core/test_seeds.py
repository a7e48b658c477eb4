"""A start with its state as bytes: what goes in comes out, and nothing else is read."""

from __future__ import annotations

import zlib
from dataclasses import replace

import pytest

from broker.core import seeds
from broker.core.seeds import MAGIC, Seed, decode, encode
from db.replication import OfferedStart
from myqueue.errors import CorruptBatchError, TooLargeError
from myqueue.protocol.fold import ConsumerState, HandedOut, LogState, ProducerState, StoredRequest
from tests.support.factories import PARTITION

STATE = LogState({7: ProducerState(1, 9, (StoredRequest(8, 70, 12, 2, 50), StoredRequest(9, 72, 14, 1, 51)), 51)},
                 {"#1": ConsumerState(60, 2, 15, 52), "@1": ConsumerState(50, 3, 14, 51, 58, 2),
                  "#2": ConsumerState(1, 0, 5, 6, committer=2**53 - 1, sequence=9),
                  "é": ConsumerState(0, 0, 3, 4)}, {("#1", "r"): HandedOut(59, 52)}, 40)
SEED = Seed(PARTITION, 5, 9, OfferedStart(10, 3, bytes(range(32))), 44, 99, 20, STATE, b'{"topic": "t", "config": {}}')


def test_an_offer_comes_back_as_it_went():
    assert decode(encode(SEED)) == SEED
    assert decode(encode(replace(SEED, state=LogState(), introduction=b""))) == replace(SEED, state=LogState(), introduction=b"")


def test_an_offer_asks_for_its_border():
    """The answer to an empty append there says whether it is held."""
    request = SEED.border.request
    assert (request.epoch, request.position, request.prev_epoch, request.entries, request.commit, request.round) == (5, 10, 3, (), 0, 9)


@pytest.mark.parametrize("spoil", [
    lambda body: b"", lambda body: b"MQS2" + body[4:], lambda body: body[:-1], lambda body: body + b"x", lambda body: MAGIC + b"junk",
    lambda body: MAGIC + zlib.compress(b"[]"), lambda body: MAGIC + zlib.compress(b"{}"), lambda body: MAGIC + zlib.compress(b"[" * 100_000),
    lambda body: MAGIC + zlib.compress(zlib.decompress(body[4:]).replace(b'"start_lsn":10', b'"start_lsn":21')),
    lambda body: MAGIC + zlib.compress(zlib.decompress(body[4:]).replace(b'"start_chain":"00', b'"start_chain":"')),
    lambda body: MAGIC + zlib.compress(zlib.decompress(body[4:]).replace(b'["#1",60,', b'["#1",60,60,')),
], ids=["empty", "version", "short", "long", "junk", "a list", "nothing", "deep", "start above the state", "short chain", "wide row"])
def test_what_is_no_offer_is_refused(spoil):
    with pytest.raises(CorruptBatchError):
        decode(spoil(encode(SEED)))


def test_an_offer_is_bounded_on_both_sides(monkeypatch: pytest.MonkeyPatch):
    """Packed or not: a few bytes never become many."""
    body = encode(SEED)
    monkeypatch.setattr(seeds, "STATE_BYTES_MAX", 100)
    with pytest.raises(TooLargeError):
        encode(SEED)
    with pytest.raises(CorruptBatchError):
        decode(body)
