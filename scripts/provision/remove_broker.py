"""Takes a broker out of a cluster: its partitions move to others first. Refused, with the reason, while data would be lost.

MYQUEUE_TOKEN=… python remove_broker.py --bootstrap HOST:PORT --host ADDRESS [--port PORT]. A broker that is not there is out already.
It may be cut short and run again: the drain goes on meanwhile. --cancel ends the drain: the broker is used again.
Exit codes: 0 it is out, 1 it is not, 2 usage. Needs nothing but Python.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

CALL_SECONDS = 30.0
POLL_SECONDS = 0.5
TELL_SECONDS = 10.0
STALE_SECONDS = 10.0  # an older answer does not prove that a broker is not there


class RefusedError(Exception):
    """The cluster says no, or the call was wrong: asking again changes nothing."""


class NotNowError(Exception):
    """No answer, or one that says to ask again. What was asked for may have been done."""


@dataclass(frozen=True, slots=True)
class Broker:
    """One row of the cluster's list."""

    broker_id: int
    partitions: int


class Cluster:
    """The calls that are needed, at one balancer or manager."""

    def __init__(self, bootstrap: str, token: str | None) -> None:
        self._url, self._token = f"http://{bootstrap}", token
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def broker_at(self, host: str, port: int) -> Broker | None:
        """The broker with that address, None where there is surely none. Raises like :meth:`_call`."""
        answer, age_seconds = self._call("GET", "/broker")
        for row in answer["brokers"]:
            if (row["host"], row["port"]) == (host, port):
                return Broker(row["broker_id"], row["partitions"])
        if age_seconds > STALE_SECONDS:
            raise NotNowError(f"the manager that answers has not heard of the others for {age_seconds:.0f} s")
        return None

    def drain(self, broker_id: int, *, draining: bool) -> None:
        """Let its partitions move away, or use it again."""
        self._call("POST", f"/v1/brokers/{broker_id}/drain", draining=draining)

    def remove(self, broker_id: int) -> None:
        """Take it out; refused by the cluster while it holds a partition."""
        self._call("DELETE", "/broker/remove", broker_id=broker_id)

    def _call(self, method: str, path: str, **body: object) -> tuple[Any, float]:
        """The JSON of an answer, and how many seconds old it may be. Raises RefusedError or NotNowError."""
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(self._url + path, method=method, data=data)  # noqa: S310 - always http
        request.add_header("Content-Type", "application/json")
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with self._opener.open(request, timeout=CALL_SECONDS) as answer:
                return json.load(answer), float(answer.headers.get("MyQueue-Freshness-Seconds", "inf"))
        except urllib.error.HTTPError as error:
            raise_answer(error)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NotNowError(f"{self._url}: {error}") from None


def raise_answer(error: urllib.error.HTTPError) -> NoReturn:
    """An answer that is an error, as an exception with its message."""
    text = error.read().decode(errors="replace")
    try:
        told = json.loads(text)
        message = told.get("message") or told["error"]["message"]
    except (ValueError, KeyError, TypeError, AttributeError):
        message = f"status {error.code}: {text[:200]}"
    raise (NotNowError if error.code >= 500 or error.code == 429 else RefusedError)(message) from None


def say(text: str) -> None:
    print(f"remove_broker: {text}", file=sys.stderr, flush=True)


def remove(cluster: Cluster, host: str, port: int, *, timeout_seconds: float) -> str:
    """Ask for the drain, wait until it is done, then remove the broker; what was done.

    Raises:
        RefusedError: the cluster says no; nothing was removed.
        NotNowError: not done in time; a drain that was asked for goes on.
    """
    end = time.monotonic() + timeout_seconds
    told_at, drained, removed, broker, why = -TELL_SECONDS, False, False, None, ""
    while True:
        try:
            found = cluster.broker_at(host, port)
            if found is None:
                return f"broker {broker.broker_id} is out of the cluster" if broker else f"there is no broker at {host}:{port}"
            broker = found
            if not drained:
                cluster.drain(broker.broker_id, draining=True)
                drained = True
            if broker.partitions == 0 and not removed:
                cluster.remove(broker.broker_id)
                removed = True  # and see that it is gone
            why = (f"broker {broker.broker_id} is removed and still listed" if removed else
                   f"broker {broker.broker_id} is being drained and still holds {broker.partitions} partition(s)")
        except NotNowError as error:
            why = str(error)
        now = time.monotonic()
        if now >= end:
            raise NotNowError(f"not done after {timeout_seconds:.0f} s: {why}")
        if now >= told_at + TELL_SECONDS:
            told_at = now
            say(f"waiting: {why}")
        time.sleep(min(POLL_SECONDS, end - now))


def cancel(cluster: Cluster, host: str, port: int) -> str:
    """End a drain; what was done. Raises like :meth:`Cluster.broker_at`."""
    broker = cluster.broker_at(host, port)
    if broker is None:
        return f"there is no broker at {host}:{port}"
    cluster.drain(broker.broker_id, draining=False)
    return f"broker {broker.broker_id} is used again"


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True, help="HOST:PORT of a balancer or manager")
    parser.add_argument("--host", required=True, help="the broker's address")
    parser.add_argument("--port", type=int, default=9095)
    parser.add_argument("--timeout-seconds", type=float, default=600, help="for its partitions to move (default 600)")
    parser.add_argument("--cancel", action="store_true", help="end the drain instead: the broker is used again")
    given = parser.parse_args(argv)
    cluster = Cluster(given.bootstrap, os.environ.get("MYQUEUE_TOKEN"))
    try:
        if given.cancel:
            done = cancel(cluster, given.host, given.port)
        else:
            done = remove(cluster, given.host, given.port, timeout_seconds=given.timeout_seconds)
    except RefusedError as error:
        say(f"FAILED, the broker stays: {error}")
        return 1
    except (NotNowError, KeyboardInterrupt) as error:
        say(f"FAILED: {str(error) or 'interrupted'}; run it again to go on, or with --cancel to keep the broker")
        return 1
    say(f"done: {done}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
