from __future__ import annotations

import pytest

from manager.service import checked_config
from myqueue.errors import BadRequestError


def test_a_small_flat_object_passes():
    config = {"retention_ms": 60_000, "segment.bytes": 1, "compact": True, "note": "ä"}
    assert checked_config(config) == config
    assert checked_config(None) == {}


@pytest.mark.parametrize("config", [
    [], "x", 5, True, {"": 1}, {"A": 1}, {"a b": 1}, {"a": 1.5}, {"a": None}, {"a": {}}, {"a": []}, {"a": "x\0"}, {"a": "\ud800"}, {"a": 2**63},
    {"a": "x" * 1_001}, {f"a{number}": 1 for number in range(33)}])
def test_anything_else_is_refused(config):
    with pytest.raises(BadRequestError):
        checked_config(config)
