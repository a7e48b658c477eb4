"""One broker more, where the cluster runs under a supervisor on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from urllib.parse import urlsplit

from myqueue.errors import UNKNOWN, BadRequestError, OutcomeUnknownError, OverloadedError, UnavailableError
from myqueue.protocol.types import NodeAddress

PROJECT = Path(__file__).resolve().parents[1]
ANSWER_SECONDS = 12.0  # what a caller waits; the balancer gives a manager 15 s
START_SECONDS = 260.0  # more than the command's own two waits of 120 s


class Spawner:
    """Has brokers started by the supervisor's own command, which knows ports, databases and secrets. One at a time.

    Args:
        data: the cluster's data folder; None where there is no supervisor.
    """

    def __init__(self, data: str | None) -> None:
        self._data = data
        self._busy = threading.Lock()

    def spawn(self) -> NodeAddress:
        """Start a broker; where it listens, once it is ready.

        Raises:
            BadRequestError: there is no supervisor.
            OverloadedError: another one is just being started; nothing was done.
            UnavailableError: the supervisor refused; nothing was done.
            OutcomeUnknownError: it takes long, or failed half way; it may be there in a moment.
        """
        if self._data is None:
            raise BadRequestError("this manager does not run under a supervisor that could spawn a broker: give the address of one that runs")
        if not self._busy.acquire(blocking=False):
            raise OverloadedError("a broker is just being started: ask again when it is there")
        started: Future[NodeAddress] = Future()
        threading.Thread(target=self._run, args=(self._data, started), name="spawner", daemon=True).start()  # a stop does not wait for it
        try:
            return started.result(ANSWER_SECONDS)
        except TimeoutError:
            raise OutcomeUnknownError("the broker is still being started: it may be listed in a moment") from None

    def _run(self, data: str, started: Future[NodeAddress]) -> None:
        address = error = None
        try:
            address = _start(data)
        except BaseException as failure:  # noqa: BLE001 - raised where it is waited for
            error = failure
        self._busy.release()  # before anybody is told: he may want the next one at once
        if address is not None:
            started.set_result(address)
        else:
            started.set_exception(error)


def _start(data: str) -> NodeAddress:
    command = [sys.executable, "-m", "myqueue", "cluster", "add-broker", "--json", "--data", data]
    try:
        done = subprocess.run(command, cwd=PROJECT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=START_SECONDS)
        told = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise OutcomeUnknownError(f"the broker was not ready within {START_SECONDS:.0f} s") from None
    except ValueError:
        raise OutcomeUnknownError(f"the command that starts brokers ended with {done.returncode} and did not say what it did") from None
    if done.returncode:
        kind = OutcomeUnknownError if told["outcome"] == UNKNOWN else UnavailableError
        raise kind(f"the broker could not be started: {told['error']}", component="supervisor")
    at = urlsplit(told["url"])
    assert at.hostname is not None and at.port is not None
    return NodeAddress(at.hostname, at.port)
