from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from gunicorn.workers.gthread import PollableMethodQueue

from myqueue.service.gunicorn_worker import FrameWorker


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
