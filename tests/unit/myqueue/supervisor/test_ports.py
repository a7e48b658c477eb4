"""Ports that are kept for nodes which are not up."""

from __future__ import annotations

import random
import socket
import sys

import pytest

from myqueue.errors import ConfigurationError
from myqueue.supervisor import ports as ports_module
from myqueue.supervisor.ports import PORTS, PortKeeper, is_free
from myqueue.supervisor.spec import HOST

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="ports are kept on Linux only")


def only(monkeypatch: pytest.MonkeyPatch, *ports: int) -> None:
    monkeypatch.setattr(ports_module, "PORTS", range(ports[0], ports[-1] + 1))


@only_linux
def test_what_one_keeps_no_other_picks_until_it_is_let_go(keeper: PortKeeper, monkeypatch: pytest.MonkeyPatch):
    port = keeper.pick()
    only(monkeypatch, port)
    with PortKeeper() as other:
        with pytest.raises(ConfigurationError, match=f"no free port found between {port} and {port + 1}"):
            other.pick()
        keeper.let_go()
        assert other.pick() == port


@only_linux
def test_the_node_itself_can_listen_again_and_again(keeper: PortKeeper, monkeypatch: pytest.MonkeyPatch):
    """Also with its last connections still known to the kernel; and while it is down nobody else gets the port."""
    port = keeper.pick()
    for _ in range(3):
        with socket.create_server((HOST, port)) as node, socket.create_connection((HOST, port), 5):
            node.accept()[0].close()
            assert not is_free(port)
    only(monkeypatch, port)
    with PortKeeper() as other, pytest.raises(ConfigurationError):
        other.pick()


@only_linux
def test_a_port_may_be_kept_by_several_who_know_it(keeper: PortKeeper, monkeypatch: pytest.MonkeyPatch):
    """The command picks it, the supervisor goes on keeping it."""
    port = keeper.pick()
    with PortKeeper() as supervisor:
        supervisor.keep([port])
        keeper.let_go()
        only(monkeypatch, port)
        with PortKeeper() as other, pytest.raises(ConfigurationError):
            other.pick()
        with socket.create_server((HOST, port)):
            supervisor.keep([port])


@only_linux
def test_a_port_is_free_again_after_its_node_and_its_keeper_but_not_beside_another_keeper(keeper: PortKeeper):
    """Also while the kernel knows the node's last connections, which it ended itself."""
    port = keeper.pick()
    assert not is_free(port)
    with socket.create_server((HOST, port)) as node, socket.create_connection((HOST, port), 5) as caller:
        served, _ = node.accept()
        served.close()
        caller.recv(1)
    keeper.let_go()
    assert is_free(port)
    with PortKeeper() as other:
        fresh = other.pick()
        assert not is_free(fresh)
    assert is_free(fresh)


def test_a_port_on_which_somebody_listens_is_not_picked(monkeypatch: pytest.MonkeyPatch):
    with socket.create_server((HOST, 0)) as somebody, PortKeeper() as keeper:
        port = somebody.getsockname()[1]
        only(monkeypatch, port)
        keeper.keep([port])  # its node will say that it cannot listen
        with pytest.raises(ConfigurationError):
            keeper.pick()


def test_programs_that_start_with_the_same_seed_pick_different_ports():
    """Two test runs side by side begin with the same seed."""
    def picked() -> list[int]:
        random.seed(7)
        with PortKeeper() as keeper:
            return [keeper.pick() for _ in range(5)]

    first, second = picked(), picked()
    assert first != second
    assert {*first, *second} <= {*PORTS}
