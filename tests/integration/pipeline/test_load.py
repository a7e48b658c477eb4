"""A load that is killed, again and again."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from myqueue.testing import InMemoryTransport
from tests.support.long import LONG
from tests.support.served_memory import served
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys
from pathlib import Path
from concurrent.futures import ThreadPoolExecutor
from pipeline.load.run import LoadPlan, load, load_split
from pipeline.load.splits import load_id, plan_splits
from pipeline.sink.options import WriteOptions
address, file, out = sys.argv[1:]
splits = plan_splits([file], 200_000)
plan = LoadPlan(load_id("c", 1, splits, None), tuple(splits), WriteOptions(address, "to"))
def execute(plan, splits):
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda split: load_split(plan, split), splits))
print(load(plan, Path(out), execute, wave=2, tell=lambda progress: None).messages)
"""
LINES = 60_000


def test_killed_at_several_points_and_run_again_every_line_is_there_once(tmp_path: Path) -> None:
    """kill -9 after so many eleventh parts of the lines; a second run of the whole adds nothing, nor does one without its notes."""
    file = tmp_path / "lines"
    file.write_bytes(b"".join(b"line %d with some more text behind it\n" % number for number in range(LINES)))
    memory = InMemoryTransport()
    memory.create_topic("to", 3)

    def stored() -> int:
        return sum(memory_end(memory, partition) for partition in range(3))

    with served(memory) as address:
        command = [sys.executable, "-c", PROGRAM, address, str(file), str(tmp_path)]
        for point in range(1, 11) if LONG else (1, 4, 10):
            process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
            try:
                wait_until(lambda wanted=LINES * point // 11: stored() >= wanted, timeout_seconds=30, what=f"point {point}", interval_seconds=0.002)
            finally:
                process.send_signal(signal.SIGKILL)
                process.wait(10)
        for _ in range(2):
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
            assert (0, f"{LINES}\n") == (done.returncode, done.stdout), done.stderr
        (tmp_path / "load.json").unlink()
        assert 0 == subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60).returncode
    values = sorted(message.value for partition in range(3) for message in memory.messages("to", partition))
    assert sorted(file.read_bytes().splitlines()) == values


def memory_end(memory: InMemoryTransport, partition: int) -> int:
    return len(memory.messages("to", partition))
