"""What a topic's config may say."""

from __future__ import annotations

import pytest

from myqueue.errors import BadRequestError
from myqueue.protocol.topic_config import FIELDS, NUMBER_MAX, Kept, check_config, kept_of


def test_a_config_is_whole_numbers_by_known_names():
    config = {"retention_ms": 60_000, "retention_bytes": NUMBER_MAX}
    assert check_config(config) == config
    assert check_config(None) == check_config({}) == {}
    assert check_config({"retention_ms": None}, removals=True) == {"retention_ms": None}
    assert check_config({"of.an_older_version": None}, removals=True) == {"of.an_older_version": None}


@pytest.mark.parametrize(("config", "says"), [
    ([], "an object"), ("x", "an object"), (True, "an object"), ({"": 1}, "no field ''"),
    ({"retention.ms": 1}, "no field 'retention.ms'; there are grow_at_messages, partitions_max, produce_bytes_per_second, retention_bytes, "
                          "retention_ms"),
    ({"partitions_max": 10_001}, "from 1 to 10000"), ({"grow_at_messages": 0}, "from 1 to"), ({"produce_bytes_per_second": 0}, "from 1 to"),
    *(({"retention_ms": wrong}, f"from 1 to {NUMBER_MAX}") for wrong in (0, -1, "5", True, 1.0, NUMBER_MAX + 1, None)),
])
def test_anything_else_is_refused_with_what_there_is(config: object, says: str):
    with pytest.raises(BadRequestError) as error:
        check_config(config)
    assert says in error.value.message


def test_what_is_kept_by_a_stored_config():
    """Whatever an older version let pass is no bound."""
    assert kept_of({"retention_ms": 5}) == Kept(5, None)
    assert kept_of({"retention_bytes": 7, "note": "x"}) == Kept(None, 7)
    for config in ({}, {"retention_ms": "5"}, {"retention_ms": True, "retention_bytes": -1}):
        assert kept_of(config) == Kept()
        assert not kept_of(config)
    assert set(FIELDS) == {"retention_ms", "retention_bytes", "grow_at_messages", "partitions_max", "produce_bytes_per_second"}
