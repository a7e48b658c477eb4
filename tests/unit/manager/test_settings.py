from __future__ import annotations

import pytest

from manager.settings import ManagerSettings
from myqueue.errors import ConfigurationError
from myqueue.settings import load, shown

NEEDED = {"database_url": "postgresql://u:secret@h/m", "node_id": "2", "managers": "1=http://h:1, 2=http://h:2/,3=https://h:3"}


def settings(**flags: str) -> ManagerSettings:
    return load(ManagerSettings, {**NEEDED, **flags}, {})


def test_managers_by_node_id():
    assert settings().urls == {1: "http://h:1", 2: "http://h:2", 3: "https://h:3"}
    assert settings().node == "manager-2"


@pytest.mark.parametrize(("flags", "message"), [
    ({"managers": "http://h:1"}, "should look like 1=http"),
    ({"managers": "1=h:1"}, "should look like 1=http"),
    ({"managers": "1=http://h:1,1=http://h:2"}, "names a node twice"),
    ({"node_id": "4"}, "--node-id 4 is not one of --managers"),
    ({"raft_heartbeat_seconds": "0.5"}, "needs a heartbeat of at most a third"),
    ({"node_suspect_after_seconds": "15"}, "suspect before it is dead"),
    ({"client_dead_after_seconds": "1"}, "suspect before it is dead"),
    ({"threads": "4"}, "the least is 16"),
])
def test_what_cannot_work_stops_the_start_with_a_sentence(flags, message):
    with pytest.raises(ConfigurationError, match=message):
        settings(**flags)


def test_secrets_are_masked():
    told = str(shown(settings(token="hush")))
    assert "hush" not in told
    assert "u:secret" not in told
