from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from gunicorn.workers.gthread import PollableMethodQueue

from myqueue.service import gunicorn_worker
from myqueue.service.gunicorn_worker import LOOK_SECONDS, FrameWorker


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
