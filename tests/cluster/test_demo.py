"""The demo from outside: what it prints, how it ends, and that nothing is left, however it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from myqueue.supervisor.plan import MARK
from myqueue.supervisor.process import marked
from tests.support.postgres import open_folder

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "scripts" / "demo"
PHASES = ("starting a balancer", "the cluster is ready", "auditing them")


@pytest.fixture
def place() -> Iterator[Path]:
    """Where the demo makes its folders (also as root, see TMPDIR)."""
    with open_folder("myqueue demo ") as folder:
        yield folder


@contextmanager
def demo(place: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "TMPDIR": str(place)}
    process = subprocess.Popen([str(DEMO), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               cwd="/", env=environment, start_new_session=True)
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def leftovers(place: Path) -> list[str]:
    """Files and processes of a run that has ended."""
    processes = [f"process {pid}" for pid in marked(MARK, "") if str(place) in Path(f"/proc/{pid}/cmdline").read_text(errors="replace")]
    return [str(path) for path in place.iterdir()] + processes


@pytest.mark.timeout(240)
@pytest.mark.parametrize("more", [(), pytest.param(("--chaos",), marks=pytest.mark.long)], ids=["calm", "chaos"])
def test_files_come_through_whole_and_every_count_agrees(place: Path, more: tuple[str, ...]) -> None:
    """Awkward bytes, two files of one name, a topic column, no LF at the end; in the long form also with nodes killed in the middle.

    All are counted, replicas agree, the exit code is 0, the files stay in --out.
    """
    one, two = place / "in" / "one", place / "in" / "two"
    for folder in (one, two):
        folder.mkdir(parents=True)
    (one / "my log.txt").write_bytes(b"a\r\n\n\xff\x00\n1\t2\t3\t4\t5\tT-9\nlast without LF")
    (two / "my log.txt").write_bytes(b"b\n" * 300)
    out, scratch = place / "in" / "out", place / "scratch"
    scratch.mkdir(mode=0o711)
    with demo(scratch, str(one / "my log.txt"), str(two / "my log.txt"), "--out", str(out), *more) as process:
        shown, said = process.communicate(timeout=200)
    assert 0 == process.returncode, shown + said
    killed = re.search(r"killed with -9 while messages were on their way: broker-[123], manager-[123]$", shown, re.MULTILINE)
    back = re.search(r"broker-[123] and manager-[123] are back, and every partition has all its replicas$", shown, re.MULTILINE)
    assert (bool(killed), bool(back)) == (bool(more), bool(more)), shown
    rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if line.startswith(("my_log ", "T-9 ", "total "))}
    assert {"my_log": ["304"] * 5 + ["ok"], "T-9": ["1"] * 5 + ["ok"], "total": ["305"] * 5 + ["ok"]} == rows
    assert re.search(r"^demo: ok: 305 lines in \d+ s$", shown.splitlines()[-1])
    assert list(out.rglob("*.parquet")) and (out / "audit.json").exists()
    assert [] == leftovers(scratch)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("phase", PHASES)
def test_ctrl_c_leaves_nothing(place: Path, phase: str) -> None:
    """Interrupted while the cluster starts, while messages move, while Spark runs: exit code 130, no process, no file."""
    with demo(place, "--brokers", "1", "--managers", "1") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if phase in line:
                break
        else:
            raise AssertionError(f"never came to: {phase}")
        os.killpg(process.pid, signal.SIGINT)  # what a terminal does
        shown, said = process.communicate(timeout=60)
    assert (130, "demo: interrupted") == (process.returncode, said.strip().splitlines()[-1]), shown + said
    assert [] == leftovers(place)


@pytest.mark.timeout(60)
def test_chaos_needs_enough_nodes_for_a_majority(place: Path) -> None:
    with demo(place, "--chaos", "--brokers", "2") as process:
        shown, said = process.communicate(timeout=50)
    assert (2, "", "demo: --chaos needs at least 3 brokers and 3 managers, so that a majority is left") == (process.returncode, shown, said.strip())
    assert [] == leftovers(place)


@pytest.mark.timeout(60)
def test_a_file_that_is_not_there_is_one_sentence_and_starts_nothing(place: Path) -> None:
    with demo(place, str(place / "nowhere.log")) as process:
        shown, said = process.communicate(timeout=50)
    assert (2, "", f"demo: {place / 'nowhere.log'}: No such file or directory") == (process.returncode, shown, said.strip())
    assert [] == leftovers(place)
