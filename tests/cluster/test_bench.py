"""The benchmark's first line is the one figure, its table and JSON say the same, and it leaves nothing behind, cut short or not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from myqueue.supervisor.process import marked
from tests.support.long import LONG
from tests.support.postgres import open_folder
from tests.support.waiting import wait_until

MARK = "MYQUEUE_TEST_BENCH"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def disk() -> Iterator[Path]:
    """A folder that PostgreSQL may enter where it runs as another account."""
    with open_folder() as folder:
        yield folder


def start(folder: Path, *words: object) -> subprocess.Popen[str]:
    """A run whose folder is ours, and whose processes can be found by their environment."""
    return subprocess.Popen([sys.executable, "-m", "tests.bench", "--folder", folder, *map(str, words)], cwd=ROOT, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, MARK: str(folder)})


def is_gone(folder: Path) -> bool:
    return not list(folder.glob("myqueue-bench-*")) and not marked(MARK, str(folder))


@pytest.mark.timeout(150)  # seconds on a quiet machine
def test_a_short_run(disk: Path, tmp_path: Path) -> None:
    with start(disk, "produce", "--messages", 2000, "--rounds", 1, "--json", tmp_path / "figures", "--chart", tmp_path / "charts") as process:
        said, progress = process.communicate(timeout=120)
    assert 0 == process.returncode, progress
    assert "ratio" not in progress, "nothing stands before the figure that is looked for"
    assert said.startswith("ratio to PostgreSQL alone: ")
    figures = json.loads((tmp_path / "figures").read_text())
    first = figures["rows"][0]
    assert f"{first['ratios']['PostgreSQL alone']:.2f}" == said.splitlines()[0].rpartition(" ")[2]
    assert ["MyQueue", "PostgreSQL alone", "sketch"] * 3 == [row["who"] for row in figures["rows"]]
    assert all(row["per_second"] > 0 for row in figures["rows"])
    for who in ("MyQueue", "PostgreSQL alone"):
        counted = figures["fsyncs"][who]
        assert counted["fsyncs"] >= counted["groups"] - 1, "a group was acknowledged without a sync; the last one may not be reported yet"
    assert 3 == len(list((tmp_path / "charts").glob("*.svg")))
    assert is_gone(disk)


def test_cut_short_it_leaves_nothing(disk: Path) -> None:
    with start(disk, "consume") as process:
        wait_until(lambda: len(marked(MARK, str(disk))) > 2, timeout_seconds=30, what="its servers to run")
        process.send_signal(signal.SIGINT)
        said, progress = process.communicate(timeout=50)
    assert (130, "") == (process.returncode, said), progress
    wait_until(lambda: is_gone(disk), what="everything to be gone")


@pytest.mark.skipif(not LONG, reason="in the long form only")
@pytest.mark.timeout(600)
def test_every_workload_and_every_peer_that_is_installed(disk: Path, tmp_path: Path) -> None:
    with start(disk, "--peers", "redis,rabbitmq,nats", "--messages", 5000, "--rounds", 1, "--seconds", 2, "--millions", 0.2, "--backlog", 20,
               "--json", tmp_path / "figures") as process:
        said, progress = process.communicate(timeout=550)
    assert 0 == process.returncode, said + progress
    figures = json.loads((tmp_path / "figures").read_text())
    assert 7 == len({row["workload"] for row in figures["rows"]})
    assert is_gone(disk)


@pytest.mark.skipif(not LONG, reason="in the long form only")
@pytest.mark.timeout(600)
def test_a_short_soak(disk: Path, tmp_path: Path) -> None:
    """Too short to judge, and long enough to see a line an interval and every phase."""
    done = subprocess.run([ROOT / "scripts" / "soak", "--hours", "0.004", "--interval", "3.5", "--folder", disk, "--json", tmp_path / "verdict"],
                          capture_output=True, text=True, timeout=120, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr
    assert done.stdout.endswith("soak: good\n")
    assert {"plain", "held"} <= {one["phase"] for one in json.loads((tmp_path / "verdict").read_text())["minutes"]}
