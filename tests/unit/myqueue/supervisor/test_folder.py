"""A cluster's data folder: which ports its nodes get."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from myqueue.supervisor import ClusterSpec
from myqueue.supervisor import folder as folder_module
from myqueue.supervisor import ports as ports_module
from myqueue.supervisor.folder import DataFolder
from myqueue.supervisor.ports import PortKeeper
from myqueue.supervisor.spec import HOST

SPEC = ClusterSpec(brokers=3, managers=3, ports=(0, 0))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DataFolder]:
    folder = DataFolder(tmp_path / "data")
    with folder.keeper:
        yield folder


def test_no_two_nodes_get_the_same_port(folder: DataFolder, keeper: PortKeeper, monkeypatch: pytest.MonkeyPatch):
    """Where hardly more ports are to be had than there are nodes, the balancer's are none of the others', also after growth."""
    first = keeper.pick()
    keeper.let_go()
    monkeypatch.setattr(ports_module, "PORTS", range(first, first + 14))
    saved = folder.prepare(SPEC)
    ports = [*saved.ports.values(), *saved.balancer_ports]
    assert len(ports) == len(set(ports)) == 9, "postgres, three managers, three brokers and two of the balancer"
    grown = folder.prepare(ClusterSpec(brokers=4, managers=3, ports=(0, 0)))
    assert len({*grown.ports.values(), *grown.balancer_ports}) == 10


def test_ports_stay_the_same_where_they_are_free(folder: DataFolder):
    assert folder.prepare(SPEC).ports == folder.prepare(SPEC).ports


def test_two_clusters_that_are_not_up_yet_get_different_ports(folder: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As when both are started at the same moment."""
    saved = folder.prepare(SPEC)
    draws = iter([port + step for port in saved.ports.values() for step in (0, 1, 2, 3)])
    monkeypatch.setattr(ports_module.secrets, "choice", lambda _ports: next(draws))
    other = DataFolder(tmp_path / "other")
    with other.keeper:
        assert not {*other.prepare(SPEC).ports.values()} & {*saved.ports.values(), *saved.balancer_ports}


def test_a_port_that_another_cluster_keeps_by_now_is_picked_anew(folder: DataFolder, tmp_path: Path):
    """It took it while this one was down; its node may be down just now."""
    saved = folder.prepare(SPEC)
    folder.keeper.let_go()
    with PortKeeper() as other:
        other.keep([saved.ports["broker-1"]])
        after = folder.prepare(SPEC)
    assert after.ports["broker-1"] != saved.ports["broker-1"]
    assert {**after.ports, "broker-1": 0} == {**saved.ports, "broker-1": 0}


def test_the_balancers_port_outlasts_a_killed_balancer_that_is_still_giving_back_its_memory(folder: DataFolder):
    """It looks gone and listens for some milliseconds more: clients know that port, so the next start waits for it."""
    port, other = folder.prepare(SPEC).balancer_ports
    folder.keeper.let_go()
    dying = socket.create_server((HOST, port))
    threading.Timer(0.3, dying.close).start()
    assert folder.prepare(SPEC).balancer_ports == (port, other)


def test_a_port_that_another_program_has_taken_is_not_waited_for_for_ever(folder: DataFolder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(folder_module, "AGAIN_SECONDS", 0.2)
    saved = folder.prepare(SPEC)
    folder.keeper.let_go()
    with socket.create_server((HOST, saved.ports["broker-1"])):
        again = folder.prepare(SPEC)
    assert again.ports["broker-1"] != saved.ports["broker-1"]
    assert again.balancer_ports == saved.balancer_ports
