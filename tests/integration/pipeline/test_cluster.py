"""How the jobs ask a cluster, over real HTTP."""

from __future__ import annotations

import pytest

from pipeline.cluster import TOKEN, fetch_cluster
from tests.support.snapshot_server import snapshot_server

EMPTY = {"cluster_id": "c", "version": 1, "brokers": [], "topics": [], "managers": [], "partitions": []}


@pytest.mark.parametrize(("token", "shown"), [("t0p", "Bearer t0p"), (None, None)])
def test_the_token_of_the_environment_is_shown(monkeypatch: pytest.MonkeyPatch, token: str | None, shown: str | None):
    """A cluster that can be reached from other machines asks for it."""
    monkeypatch.delenv(TOKEN, raising=False)
    if token:
        monkeypatch.setenv(TOKEN, token)
    with snapshot_server(EMPTY) as server:
        fetch_cluster(server.address)
        assert [shown] == server.authorizations
