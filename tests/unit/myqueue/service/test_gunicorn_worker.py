from __future__ import annotations

import math
import signal
import socket
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import pytest
from gunicorn.workers.gthread import PollableMethodQueue, ThreadWorker

from myqueue.service import gunicorn_worker
from myqueue.service.client_socket import ClientSocket
from myqueue.service.gunicorn_worker import LOOK_SECONDS, FrameWorker
from myqueue.service.limits import Limits


@pytest.mark.timeout(10)
def test_a_stop_takes_no_lock_that_the_interrupted_code_may_hold() -> None:
    """The signal comes while the main thread hands a request to its pool: it must not wait for what it has interrupted."""
    worker = object.__new__(FrameWorker)
    worker.alive, worker.tpool, worker.method_queue = True, ThreadPoolExecutor(1), PollableMethodQueue()
    worker.method_queue.init()
    try:
        with worker.tpool._shutdown_lock:
            worker.handle_quit(signal.SIGQUIT, None)
        assert not worker.alive
    finally:
        worker.method_queue.close()
        worker.tpool.shutdown()


def test_the_arbiter_is_told_now_and_then_however_often_the_main_loop_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sign of life is a system call on a file: not one for each request."""
    now = 100.0
    told: list[float] = []

    class Clock:
        def monotonic(self) -> float:
            return now

    class SignOfLife:
        def notify(self) -> None:
            told.append(now)

    monkeypatch.setattr(gunicorn_worker, "_clock", Clock())
    worker = object.__new__(FrameWorker)
    worker.tmp, worker.nr_conns, worker.worker_connections = SignOfLife(), 0, 1
    worker._arriving, worker._leaving, worker._looked_at = {}, {}, 0.0
    for _ in range(100):
        worker.notify()
        now += LOOK_SECONDS / 10
    assert 10 <= len(told) <= 11
    assert told[0] == 100.0


REQUEST = b"GET /x HTTP/1.1\r\n\r\n"


class Conn:
    """A connection as a thread has it."""

    class parser:
        class unreader:
            @staticmethod
            def take_buffered() -> bytes:
                return b""

    def __init__(self, sock: ClientSocket) -> None:
        self.sock = sock


class Following:
    """A worker whose requests are answered by reading them, and a caller that sends the next one as soon as it has its answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, threads: int = 4, more: list[bytes]) -> None:
        monkeypatch.setattr(gunicorn_worker, "CLOSELY_SECONDS", 0.2)
        ours, self.theirs = socket.socketpair()
        self.worker = object.__new__(FrameWorker)
        self.worker.alive, self.worker.limits, self.worker.ends_at = True, Limits(), math.inf
        self.worker.wsgi = type("App", (), {"config": {"MAX_CONTENT_LENGTH": 1_000}})
        self.worker._unserved = deque()
        self.worker._expecting = threading.BoundedSemaphore(max(1, threads // 4))
        self.conn = Conn(ClientSocket(ours, self.worker))
        self.answered = 0

        def answer(worker: FrameWorker, conn: Conn) -> bool:
            assert conn.sock.recv(1_000) == REQUEST
            self.answered += 1
            if more:
                self.theirs.sendall(more.pop(0))
            return True

        monkeypatch.setattr(ThreadWorker, "handle", answer)

    def handle(self, request: bytes = REQUEST) -> bool:
        self.theirs.sendall(request)
        assert self.conn.sock.gather()
        self.worker._unserved.append(None)
        return bool(self.worker.handle(self.conn))

    def close(self) -> None:
        self.conn.sock.close()
        self.theirs.close()


def test_a_request_that_follows_closely_needs_no_way_through_the_main_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second one of a row on: what the caller does next is guessed by what it did last."""
    caller = Following(monkeypatch, more=[b"", REQUEST, REQUEST, REQUEST])
    assert caller.handle()
    assert caller.answered == 1, "the first one"
    assert caller.handle()
    assert caller.answered == 5
    assert caller.conn.sock.is_silent
    caller.close()


def test_a_part_of_a_request_is_left_to_the_main_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread does not wait for a slow one, and nothing of it is lost."""
    caller = Following(monkeypatch, more=[b"", REQUEST[:7]])
    assert caller.handle()
    assert caller.handle()
    assert caller.answered == 2
    assert caller.conn.sock.recv(100) == REQUEST[:7]
    caller.close()


def test_only_some_threads_wait_for_what_may_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    caller = Following(monkeypatch, more=[b"", REQUEST])
    assert caller.worker._expecting.acquire(blocking=False)
    assert caller.handle()
    assert caller.handle()
    assert caller.answered == 2
    caller.worker._expecting.release()
    caller.close()


def test_no_thread_is_kept_while_another_request_waits_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it waited before, or came while this one was answered: what follows goes to the end of the line."""
    caller = Following(monkeypatch, more=[b"", REQUEST, REQUEST])
    assert caller.handle()
    caller.worker._unserved.append(None)
    assert caller.handle()
    assert caller.answered == 2
    assert len(caller.worker._unserved) == 1
    caller.close()


def test_a_worker_that_ends_waits_for_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    caller = Following(monkeypatch, more=[b"", REQUEST])
    assert caller.handle()
    caller.worker.alive = False
    assert caller.handle()
    assert caller.answered == 2
    caller.close()
