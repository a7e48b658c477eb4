"""A cluster's data folder: which ports its nodes get."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from myqueue.supervisor import ClusterSpec
from myqueue.supervisor import folder as folder_module
from myqueue.supervisor.folder import PORTS, DataFolder, pick_port

SPEC = ClusterSpec(brokers=3, managers=3, ports=(0, 0))


def test_no_two_nodes_get_the_same_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where hardly more ports are to be had than there are nodes, the balancer's are none of the others', also after growth."""
    first = pick_port()
    monkeypatch.setattr(folder_module, "PORTS", range(first, first + 14))
    saved = DataFolder(tmp_path / "data").prepare(SPEC)
    ports = [*saved.ports.values(), *saved.balancer_ports]
    assert len(ports) == len(set(ports)) == 9, "postgres, three managers, three brokers and two of the balancer"
    grown = DataFolder(tmp_path / "data").prepare(ClusterSpec(brokers=4, managers=3, ports=(0, 0)))
    assert len({*grown.ports.values(), *grown.balancer_ports}) == 10


def test_programs_that_start_with_the_same_seed_pick_different_ports():
    """Two test runs side by side begin with the same seed."""
    def picked() -> list[int]:
        random.seed(7)
        return [pick_port() for _ in range(5)]

    first, second = picked(), picked()
    assert first != second
    assert {*first, *second} <= {*PORTS}
