"""The bench command counts every message at both ends, says where the time goes and leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path


def folders() -> set[Path]:
    return {path for parent in ("/var/tmp", tempfile.gettempdir()) for path in Path(parent).glob("myqueue-bench-*")}


def test_a_short_run(tmp_path: Path) -> None:
    before = folders()
    done = subprocess.run([sys.executable, "-m", "myqueue", "bench", "--messages", "5000", "--rounds", "1", "--json", str(tmp_path / "figures")],
                          capture_output=True, text=True, timeout=55, check=False)
    assert 0 == done.returncode, done.stderr
    assert done.stdout.splitlines()[-1].startswith("bench: produce ")
    rounds = json.loads((tmp_path / "figures").read_text())["rounds"]
    assert ["produce", "consume"] == [measured["workload"] for measured in rounds]
    assert all(measured["messages_per_second"] > 0 for measured in rounds)
    assert before == folders()


def test_an_unknown_workload_is_usage() -> None:
    done = subprocess.run([sys.executable, "-m", "myqueue", "bench", "nonsense"], capture_output=True, text=True, timeout=30, check=False)
    assert (2, "") == (done.returncode, done.stdout)
