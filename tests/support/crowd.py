"""Many connections at once from one thread, and one client that keeps its pace beside them."""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.support.raw_http import RawConnection

TRIES = 3
NOISE_SECONDS = 0.05  # of a machine that does other work too; more than twice the quiet time is counted only beyond it


@dataclass
class Member:
    """One connection of a crowd: what it will send, a byte a turn, and what it got."""

    sock: socket.socket
    left: bytes
    received: bytes = b""
    received_at: list[float] = field(default_factory=list)
    ended_at: float | None = None


class Crowd:
    """Connections that send ``first`` at once and ``drip`` a byte every ``pause_seconds``, and take in what they get."""

    def __init__(self, port: int, count: int, *, first: bytes = b"", drip: bytes = b"", pause_seconds: float = 1.0) -> None:
        self.began = time.monotonic()
        self.members = [Member(socket.create_connection(("127.0.0.1", port), timeout=10), drip) for _ in range(count)]
        self._pause_seconds, self._over = pause_seconds, threading.Event()
        for member in self.members:
            member.sock.sendall(first)
            member.sock.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="crowd")
        self._thread.start()

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *exc: object) -> None:
        self.hang_up()

    def hang_up(self, *, reset: bool = False) -> None:
        """Close every connection, with an RST if asked for."""
        self._over.set()
        self._thread.join(10)
        for member in self.members:
            if reset:
                member.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            member.sock.close()

    @property
    def ended(self) -> int:
        """How many connections the other side has closed."""
        return sum(member.ended_at is not None for member in self.members)

    def answered(self, text: bytes) -> int:
        """How many have received this text."""
        return sum(text in member.received for member in self.members)

    def _run(self) -> None:
        poller, by_descriptor = select.poll(), {member.sock.fileno(): member for member in self.members}
        for descriptor in by_descriptor:
            poller.register(descriptor, select.POLLIN)
        turn = time.monotonic()
        while not self._over.is_set():
            if time.monotonic() >= turn:
                turn = max(turn + self._pause_seconds, time.monotonic())
                for member in self.members:
                    self._drip(member)
            for descriptor, _ in poller.poll(20):
                if not self._take(by_descriptor[descriptor]):
                    poller.unregister(descriptor)

    @staticmethod
    def _drip(member: Member) -> None:
        if member.left and member.ended_at is None:
            try:
                member.sock.send(member.left[:1])
            except OSError:
                return  # its end is read in a moment
            member.left = member.left[1:]

    @staticmethod
    def _take(member: Member) -> bool:
        try:
            piece = member.sock.recv(65_536)
        except BlockingIOError:
            return True
        except OSError:
            piece = b""
        if piece:
            member.received += piece
            member.received_at.append(time.monotonic())
        else:
            member.ended_at = time.monotonic()
        return bool(piece)


def times_of(port: int, target: str, *, seconds: float, a_second: float = 50.0, body: bytes = b"") -> list[float]:
    """How long each of a healthy client's requests took, one after the other at this pace at most; each must be answered with 200."""
    taken: list[float] = []
    with RawConnection(port) as connection:
        begin = time.monotonic()
        while (now := time.monotonic()) < begin + seconds:
            time.sleep(max(0.0, begin + len(taken) / a_second - now))  # the pace, not a wait for anything
            asked = time.monotonic()
            answer = connection.ask(target, method="POST" if body else "GET", body=body)
            taken.append(time.monotonic() - asked)
            assert 200 == answer.status, answer
    return taken


def p99(seconds: Sequence[float]) -> float:
    return sorted(seconds)[min(len(seconds) - 1, int(len(seconds) * 0.99))]


def assert_undisturbed(quiet: Sequence[float], beside: Callable[[], Sequence[float]]) -> None:
    """The healthy client's p99 stays below twice its quiet value, give or take the machine's noise.

    It is measured up to three times: who is held up is so every time, and a machine that does other work for a moment is not.
    """
    limit, seen = 2 * p99(quiet) + NOISE_SECONDS, list[float]()
    while len(seen) < TRIES and (not seen or seen[-1] > limit):
        seen.append(p99(beside()))
    assert seen[-1] <= limit, f"p99 {[f'{one * 1e3:.1f} ms' for one in seen]}, quiet {p99(quiet) * 1e3:.1f} ms"
