"""Scripts that end right after their last send, in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from myqueue.errors import UnreachableError
from myqueue.testing import InMemoryTransport
from tests.support.served_memory import served

ROOT = Path(__file__).resolve().parents[3]
SENDS = """
import os, signal, sys
import myqueue.client.producer
from myqueue import MyConsumer, MyProducer
myqueue.client.producer.EXIT_FLUSH_SECONDS = 3.0
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
producer = MyProducer(['A'], broker=sys.argv[1])
for number in range(1000):
    producer.send('A', b'%d' % number)
"""


def run(text: str, transport: InMemoryTransport) -> subprocess.CompletedProcess[str]:
    with served(transport) as address:
        return subprocess.run([sys.executable, "-c", text, address], capture_output=True, text=True, timeout=40, check=False, cwd="/",
                              env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)})


@pytest.mark.parametrize(("ending", "code"), [
    ("", 0), ("1 / 0", 1), ("sys.exit(3)", 3), ("os.kill(os.getpid(), signal.SIGTERM)", 143), ("os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT),
    ("def f():\n    p = MyProducer(['A'], broker=sys.argv[1])\n    p.send('A', b'1000')\nproducer.flush(); f()", 0),
])
def test_whatever_way_the_script_ends_everything_is_delivered(ending: str, code: int) -> None:
    """Also by SIGTERM where the script turns it into an exception, and where nobody holds the producer any more."""
    transport = InMemoryTransport()
    ended = run(SENDS + ending, transport)
    assert code == ended.returncode, ended.stderr
    assert "myqueue:" not in ended.stderr
    expected = [b"%d" % number for number in range(1_001 if "1000'" in ending else 1_000)]
    assert expected == [message.value for message in transport.messages("A")]


def test_what_cannot_be_delivered_is_counted_on_stderr() -> None:
    transport = InMemoryTransport()

    def away(method: str, url: str) -> None:
        if url.endswith("/records"):
            raise UnreachableError

    transport.on_request = away
    ended = run(SENDS, transport)
    assert "myqueue: at exit 1000 messages were not delivered" in ended.stderr


def test_a_consumer_that_is_not_stopped_has_committed_at_the_end() -> None:
    transport = InMemoryTransport()
    ended = run(SENDS + """
producer.stop()
consumer = MyConsumer(['A'], broker=sys.argv[1])
print(sum(1 for message in consumer.get_next(0.5)))
""", transport)
    assert (0, "1000\n", "") == (ended.returncode, ended.stdout, ended.stderr)
    assert 1_000 == transport.committed("A", 0, 1)
