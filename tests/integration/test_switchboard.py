"""The relays of the fault campaign: what passes, what is held, what is broken, and who is known to call."""

from __future__ import annotations

import contextlib
import gc
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from myqueue.supervisor.plan import MARK
from myqueue.supervisor.ports import PortKeeper
from tests.campaign.exchange import Exchange, ExchangeError
from tests.campaign.switchboard import CLIENTS, CUT, LOSE_REPLY, RESET_IN_REPLY, SLOW, Rule, Switchboard

HOST = "127.0.0.1"
ASK = """import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10) as connection:
    connection.settimeout(float(sys.argv[2]))
    connection.sendall(b"hello")
    try:
        print(connection.recv(100).decode())
    except TimeoutError:
        print("silence")
"""


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that answers what it is sent, in capitals; its port."""
    listener = socket.create_server((HOST, 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def answer(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            while data := connection.recv(1_000):
                connection.sendall(data.upper())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(5)


@pytest.fixture
def board() -> Iterator[Switchboard]:
    with contextlib.closing(Switchboard()) as board:
        yield board


def test_a_relay_never_listens_where_another_node_is_to_listen(board: Switchboard, keeper: PortKeeper, echo: int,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """The kept ports of nodes that are not up yet."""
    meant_for_others, free = keeper.pick(), keeper.pick()
    keeper.let_go([free])
    draws = iter([meant_for_others, free])
    monkeypatch.setattr(secrets, "choice", lambda _ports: next(draws))
    assert board.add("broker-1", echo) == free


def dial(port: int, timeout_seconds: float = 5.0) -> socket.socket:
    connection = socket.create_connection((HOST, port), timeout_seconds)
    connection.settimeout(timeout_seconds)
    return connection


def ask(connection: socket.socket, text: bytes = b"hello") -> bytes:
    connection.sendall(text)
    return connection.recv(100)


def ask_as(name: str, port: int, timeout_seconds: float = 5.0) -> str:
    """Ask from a process that the supervisor would have marked as this node."""
    done = subprocess.run([sys.executable, "-c", ASK, str(port), str(timeout_seconds)], env={MARK: f"cluster:{name}"}, capture_output=True, text=True,
                          timeout=30)
    return done.stdout.strip()


def test_what_is_said_passes_both_ways(board: Switchboard, echo: int) -> None:
    with dial(board.add("broker-1", echo)) as connection:
        assert [b"HELLO", b"AGAIN"] == [ask(connection), ask(connection, b"again")]


def test_connections_that_come_while_a_relay_stops_listening_are_closed(board: Switchboard, echo: int) -> None:
    """Their other ends learn it, and none is left to the garbage collector, which would complain."""
    port = board.add("broker-1", echo)
    for _ in range(60):
        callers = [socket.socket() for _ in range(12)]
        for caller in callers:
            caller.setblocking(False)
            caller.connect_ex((HOST, port))
        board.refuse("broker-1")
        for caller in callers:
            caller.settimeout(5)
            with contextlib.suppress(OSError):
                caller.sendall(b"hello")
                assert caller.recv(100) in (b"", b"HELLO")
            caller.close()
        board.accept("broker-1")
    gc.collect()


def test_a_cut_holds_what_is_said_until_it_is_lifted(board: Switchboard, echo: int) -> None:
    """On a connection that is open, and on one that is made meanwhile."""
    port = board.add("broker-1", echo)
    with dial(port, 0.3) as old:
        assert b"HELLO" == ask(old)
        cut = board.put(Rule(CUT, CLIENTS, "broker-1"))
        with dial(port, 0.3) as new:
            for connection in (old, new):
                with pytest.raises(TimeoutError):
                    ask(connection, b"late")
            board.lift(cut)
            for connection in (old, new):
                connection.settimeout(5)
                assert b"LATE" == connection.recv(100)


def test_a_cut_of_one_way_holds_the_answers_of_the_other(board: Switchboard, echo: int) -> None:
    """From broker-1 to the clients: their requests arrive, its answers do not; and a cut between others changes nothing."""
    port = board.add("broker-1", echo)
    board.put(Rule(CUT, "manager-1", "broker-1"))
    board.put(Rule(CUT, "broker-1", "manager-1"))
    with dial(port, 0.3) as connection:
        assert b"HELLO" == ask(connection)
        cut = board.put(Rule(CUT, "broker-1", CLIENTS))
        with pytest.raises(TimeoutError):
            ask(connection)
        board.lift(cut)
        connection.settimeout(5)
        assert b"HELLO" == connection.recv(100)


def test_the_caller_is_known_by_its_process(board: Switchboard, echo: int) -> None:
    port = board.add("broker-1", echo)
    board.put(Rule(CUT, "manager-2", "broker-1"))
    assert "HELLO" == ask_as("manager-1", port)
    assert "silence" == ask_as("manager-2", port, 0.5)


def test_a_slow_link_takes_its_time_in_both_directions(board: Switchboard, echo: int) -> None:
    port = board.add("broker-1", echo)
    with dial(port) as connection:
        ask(connection)
        board.put(Rule(SLOW, CLIENTS, "broker-1", 0.1))
        board.put(Rule(SLOW, "broker-1", CLIENTS, 0.1))
        began = time.monotonic()
        assert b"HELLO" == ask(connection)
        assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize(("action", "received"), [(LOSE_REPLY, b""), (RESET_IN_REPLY, b"HE")])
def test_a_reply_is_lost_or_broken_once_in_so_many(board: Switchboard, echo: int, action: str, received: bytes) -> None:
    port = board.add("broker-1", echo)
    board.put(Rule(action, CLIENTS, "broker-1", every=2))
    with dial(port) as connection:
        assert b"HELLO" == ask(connection)
        connection.sendall(b"hello")
        got = b""
        with pytest.raises(ConnectionResetError):
            while piece := connection.recv(100):
                got += piece
            pytest.fail("the connection ended well")
        assert got in (received, b"")  # a reset may overtake what was sent before it


def test_a_node_that_is_down_refuses_and_one_that_is_back_answers(board: Switchboard, echo: int) -> None:
    port = board.add("broker-1", echo)
    with dial(port) as connection:
        ask(connection)
        board.refuse("broker-1")
        with pytest.raises(ConnectionError):
            ask(connection)
            ask(connection)
        with pytest.raises(ConnectionRefusedError):
            dial(port)
    board.accept("broker-1")
    with dial(port) as connection:
        assert b"HELLO" == ask(connection)


def test_where_nobody_listens_a_caller_is_reset(board: Switchboard) -> None:
    with socket.create_server((HOST, 0)) as free:
        port = board.add("broker-1", free.getsockname()[1])
    with pytest.raises(ConnectionError), dial(port) as connection:
        ask(connection)
        pytest.fail("somebody answered")


def test_in_a_process_of_its_own_it_does_the_same(echo: int) -> None:
    """What a caller is, who is down, which rule is lifted; what cannot be done is told, and the next order is carried out."""
    with contextlib.closing(Exchange()) as board:
        port = board.add("broker-1", echo)
        board.put(Rule(CUT, "manager-2", "broker-1"))
        cut = board.put(Rule(CUT, CLIENTS, "broker-1"))
        with dial(port, 0.2) as connection, pytest.raises(TimeoutError):
            ask(connection)
        board.lift(cut)
        with dial(port) as connection:
            assert b"HELLO" == ask(connection)
        assert ("silence", "HELLO") == (ask_as("manager-2", port, 0.2), ask_as("manager-3", port))
        with pytest.raises(ExchangeError, match="TypeError"):
            board._ask("add", "broker-2")
        board.refuse("broker-1")
        with pytest.raises(ConnectionRefusedError):
            dial(port)
        board.accept("broker-1")
        with dial(port) as connection:
            assert b"HELLO" == ask(connection)
    with pytest.raises(ConnectionRefusedError):
        dial(port)
