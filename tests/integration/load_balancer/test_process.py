"""How the balancer is started: ports, workers, token."""

from __future__ import annotations

import requests

from myqueue.supervisor.ports import PortKeeper
from tests.support.service import service
from tests.support.upstream import FakeCluster
from tests.support.waiting import wait_until


def test_it_listens_on_several_ports_and_every_worker_serves(cluster: FakeCluster, keeper: PortKeeper) -> None:
    first, second = keeper.pick(), keeper.pick()
    with service("load_balancer", "--managers", cluster.managers[1].url, "--port", f"{first},{second}", "--workers", "2", port=first) as running:
        wait_until(lambda: running.answers("/readyz"), what="the table")
        for port in (first, second):
            assert 200 == requests.get(f"http://127.0.0.1:{port}/topics", timeout=5).status_code


def test_a_token_is_asked_for_and_passed_on(cluster: FakeCluster) -> None:
    with service("load_balancer", "--managers", cluster.managers[1].url, extra={"MYQUEUE_TOKEN": "sesame"}) as running:
        assert 401 == requests.get(running.url + "/topics", timeout=5).status_code
        wait_until(lambda: requests.get(running.url + "/topics", headers={"Authorization": "Bearer sesame"}, timeout=5).status_code == 200,
                   what="the table")
        assert "sesame" not in running.log()
    assert {"Bearer sesame"} == {request.header("Authorization") for node in cluster.nodes() for request in (*node.received, *node.polls)}
