"""One broker more, where the cluster runs under a supervisor on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

from myqueue.errors import BadRequestError, OutcomeUnknownError, OverloadedError, UnavailableError
from myqueue.protocol.types import NodeAddress

PROJECT = Path(__file__).resolve().parents[1]
ANSWER_SECONDS = 12.0  # what a caller waits; the balancer gives a manager 15 s
START_SECONDS = 150.0  # the command's own bounds are within this


class Spawner:
    """Has brokers started by the supervisor's own command, which knows ports, databases and secrets. One at a time.

    Args:
        data: the cluster's data folder; None where there is no supervisor.
    """

    def __init__(self, data: str | None) -> None:
        self._data = data
        self._busy = threading.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="spawner")

    def spawn(self) -> NodeAddress:
        """Start a broker; where it listens, once it is ready.

        Raises:
            BadRequestError: there is no supervisor.
            OverloadedError: another one is just being started; nothing was done.
            UnavailableError: it could not be started, or this manager is stopping.
            OutcomeUnknownError: it takes long; it may be there in a moment.
        """
        if self._data is None:
            raise BadRequestError("this manager does not run under a supervisor that could spawn a broker: give the address of one that runs")
        if not self._busy.acquire(blocking=False):
            raise OverloadedError("a broker is just being started: ask again when it is there")
        try:
            starting = self._pool.submit(self._run, self._data)
        except RuntimeError:  # it is closed
            self._busy.release()
            raise UnavailableError("this manager is just stopping", component="manager") from None
        try:
            return starting.result(ANSWER_SECONDS)
        except TimeoutError:
            raise OutcomeUnknownError("the broker is still being started: it may be listed in a moment") from None

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, data: str) -> NodeAddress:
        command = [sys.executable, "-m", "myqueue", "cluster", "add-broker", "--json", "--data", data]
        try:
            done = subprocess.run(command, cwd=PROJECT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=START_SECONDS)
        except subprocess.TimeoutExpired:
            raise OutcomeUnknownError(f"the broker was not ready within {START_SECONDS:.0f} s") from None
        finally:
            self._busy.release()
        if done.returncode:
            said = done.stderr.strip().rpartition("\n")[2]
            raise UnavailableError(f"the broker could not be started: {said.removeprefix('myqueue: ')}", component="supervisor")
        at = urlsplit(json.loads(done.stdout)["url"])
        assert at.hostname is not None and at.port is not None
        return NodeAddress(at.hostname, at.port)
