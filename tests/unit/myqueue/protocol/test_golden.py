"""The published formats: these vectors never change. A new version of a format gets a file of its own."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from myqueue.protocol.batch import blocks_of, pack, pack_values, records_of
from myqueue.protocol.chain import EntryHead, entry_chain
from myqueue.protocol.partitioner import partition_for
from myqueue.protocol.types import Record

DATA = Path(__file__).parents[3] / "data"
PINNED = {
    "batch.json": "014d83b31c2fb701ac2e16f1bc60294ca0f545b3dcbb77c6338407010f42c34b",
    "chain.json": "55fdf6426aa0bf09a5523eca84419c22522e85074c2047839f0bdb79240c51bb",
    "chain_trim.json": "0ce6e2ffa9ccf6375ab08534998b4c9aba2c3b6eb167a88b4365fa9d8f68053c",
    "partitioner.json": "935a51f26557caf78df1462899a681dca03489f1a1e0e519c3c0b8d2a64f1cda",
}


def cases(name: str) -> list[Any]:
    return json.loads((DATA / name).read_text(encoding="utf-8"))["cases"]


def unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def record_of(case: dict[str, Any]) -> Record:
    headers = tuple((name, unhex(value)) for name, value in case["headers"])
    return Record(bytes.fromhex(case["value"]), unhex(case["key"]), headers, case["timestamp"])


@pytest.mark.parametrize("name", PINNED)
def test_the_vectors_are_the_published_ones(name: str):
    """A vector that is changed breaks every stored log and every client: it cannot happen by accident."""
    assert hashlib.sha256((DATA / name).read_bytes()).hexdigest() == PINNED[name]


@pytest.mark.parametrize("case", cases("batch.json"), ids=lambda case: case["name"])
def test_batch(case: dict[str, Any]):
    """Records pack to exactly these bytes, and these bytes are exactly those records."""
    records = [record_of(record) for record in case["records"]]
    body = bytes.fromhex(case["batch"])
    found = blocks_of(body)
    assert pack(records).hex() == case["batch"]
    assert [block.count for block in found] == case["blocks"]
    assert [record for block in found for record in records_of(block)] == records


@pytest.mark.parametrize("case", [case for case in cases("batch.json") if not any(
    record["key"] or record["headers"] or record["timestamp"] for record in case["records"])], ids=lambda case: case["name"])
def test_the_fast_path_packs_the_same_records(case: dict[str, Any]):
    """Values alone, packed by the fast path, are the same records (its blocks may be cut elsewhere)."""
    values = [bytes.fromhex(record["value"]) for record in case["records"]]
    assert [record.value for block in blocks_of(pack_values(values)) for record in records_of(block)] == values


@pytest.mark.parametrize("case", [*cases("chain.json"), *cases("chain_trim.json")], ids=lambda case: case["name"])
def test_chain(case: dict[str, Any]):
    """An entry after this previous chain has exactly this chain."""
    columns = {name: unhex(text) for name, text in case["columns"].items()}
    assert entry_chain(bytes.fromhex(case["previous"]), EntryHead(**case["head"]), **columns).hex() == case["chain"]


@pytest.mark.parametrize("case", cases("partitioner.json"), ids=lambda case: repr(case["key"][:16]))
def test_partitioner(case: dict[str, Any]):
    """A key goes to the same partition for ever."""
    key = bytes.fromhex(case["key"])
    assert {count: partition_for(key, int(count)) for count in case["partitions"]} == case["partitions"]


def test_the_partitioner_is_crc32_as_everybody_has_it():
    """The check value of CRC-32 in every catalogue, so that other clients can do the same."""
    assert partition_for(b"123456789", 2**32) == 0xCBF43926
