"""Key → partition, version 1: ``crc32(key) % partitions``, as librdkafka's ``consistent`` partitioner does.

It is published and never changes: records of one key would else move. Golden vectors: tests/data/partitioner.json.
"""

from __future__ import annotations

from zlib import crc32

VERSION = 1


def partition_for(key: bytes, partitions: int) -> int:
    """The partition of a key, 0-based."""
    assert partitions > 0
    return crc32(key) % partitions
