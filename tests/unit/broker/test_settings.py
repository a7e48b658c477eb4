"""A broker's settings: what cannot work is one sentence."""

from __future__ import annotations

import pytest

from broker.settings import BrokerSettings
from myqueue.errors import ConfigurationError
from myqueue.settings import load, shown

GOOD = {"MYQUEUE_BROKER_DATABASE_URL": "postgresql://u:hidden1@127.0.0.1:5432/db", "MYQUEUE_BROKER_MANAGERS": "http://127.0.0.1:1,http://127.0.0.1:2"}


def test_two_settings_are_enough():
    settings = load(BrokerSettings, {}, GOOD)
    assert settings.managers == ("http://127.0.0.1:1", "http://127.0.0.1:2")
    assert 0 < settings.long_polls_max < settings.threads
    assert "hidden1" not in str(shown(settings))


@pytest.mark.parametrize(("name", "value", "sentence"), [
    ("MANAGERS", "", "names no manager"), ("MANAGERS", "1=http://x", "not of the form"), ("DATABASE_URL", "sqlite:///x", "only PostgreSQL"),
    ("PORT", "0", "the least is 1"), ("THREADS", "2", "the least is 4"), ("QUEUE_BYTES_MAX", "5", "the least is"),
    ("WRITER", "1", "unknown variable"), ("ADVERTISED_ADDRESS", "there", "host:port"), ("ADVERTISED_ADDRESS", ":9", "host:port")])
def test_what_cannot_work_is_refused(name: str, value: str, sentence: str):
    with pytest.raises(ConfigurationError, match=sentence):
        load(BrokerSettings, {}, GOOD | {f"MYQUEUE_BROKER_{name}": value})


def test_others_reach_a_broker_where_it_says_so():
    """By default where it listens; else at the advertised address."""
    here = {"MYQUEUE_BROKER_HOST": "10.0.0.5", "MYQUEUE_BROKER_PORT": "9000"}
    assert load(BrokerSettings, {}, GOOD | here).address == ("10.0.0.5", 9000)
    for text, address in (("queue.example:7", ("queue.example", 7)), ("[::1]:7", ("::1", 7))):
        assert load(BrokerSettings, {}, GOOD | here | {"MYQUEUE_BROKER_ADVERTISED_ADDRESS": text}).address == address
