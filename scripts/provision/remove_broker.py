"""Takes a broker out of a cluster: its partitions move to others first. Refused, with the reason, while data would be lost.

MYQUEUE_TOKEN=… python remove_broker.py --bootstrap HOST:PORT --host ADDRESS [--port PORT]. A broker that is not there is out already.
Exit codes: 0 it is out, 1 it is not, 2 usage. Needs nothing but Python.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

CALL_SECONDS = 30.0
POLL_SECONDS = 0.5


def call(bootstrap: str, method: str, path: str, **body: object) -> Any:
    """The JSON of an answer. Raises RuntimeError with what was answered, OSError where nobody answers."""
    request = urllib.request.Request(f"http://{bootstrap}{path}", method=method, data=json.dumps(body).encode() if body else None)
    request.add_header("Content-Type", "application/json")
    if os.environ.get("MYQUEUE_TOKEN"):
        request.add_header("Authorization", f"Bearer {os.environ['MYQUEUE_TOKEN']}")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=CALL_SECONDS) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")
        try:
            told = json.loads(text)
            raise RuntimeError(told.get("message") or told["error"]["message"]) from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise RuntimeError(f"status {error.code}: {text[:200]}") from None


def broker_at(bootstrap: str, host: str, port: int) -> int | None:
    """The id of the broker with that address, None where there is none."""
    found = [broker["broker_id"] for broker in call(bootstrap, "GET", "/broker")["brokers"] if (broker["host"], broker["port"]) == (host, port)]
    return found[0] if found else None


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True, help="HOST:PORT of a balancer or manager")
    parser.add_argument("--host", required=True, help="the broker's address")
    parser.add_argument("--port", type=int, default=9095)
    parser.add_argument("--timeout-seconds", type=float, default=600, help="for its partitions to move (default 600)")
    given = parser.parse_args(argv)
    end = time.monotonic() + given.timeout_seconds
    try:
        broker_id = broker_at(given.bootstrap, given.host, given.port)
        if broker_id is not None:
            call(given.bootstrap, "DELETE", "/broker/remove", broker_id=broker_id)
        while broker_at(given.bootstrap, given.host, given.port) is not None:
            if time.monotonic() >= end:
                print(f"remove_broker: broker {broker_id} still has partitions after {given.timeout_seconds:.0f} s", file=sys.stderr)
                return 1
            time.sleep(POLL_SECONDS)
    except (OSError, RuntimeError) as error:
        print(f"remove_broker: {error}", file=sys.stderr)
        return 1
    print(f"broker {broker_id} is out of the cluster" if broker_id is not None else f"there is no broker at {given.host}:{given.port}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
