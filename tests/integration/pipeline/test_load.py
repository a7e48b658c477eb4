"""A load that is killed, again and again."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from myqueue.testing import InMemoryTransport
from tests.support.long import LONG
from tests.support.served_memory import served
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys
from pathlib import Path
from concurrent.futures import ThreadPoolExecutor
from pipeline.load.fields import Fields
from pipeline.load.planner import load_id, plan_splits
from pipeline.load.run import LoadPlan, load, load_split
from pipeline.sink.options import WriteOptions
address, out, key, *files = sys.argv[1:]
fields = Fields(key or None)
splits = plan_splits(files, 200_000, fields)
plan = LoadPlan(load_id("c", 1, splits, fields), tuple(splits), WriteOptions(address, "to"), fields)
def execute(plan, splits):
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda split: load_split(plan, split), splits))
print(load(plan, Path(out), execute, wave=2, tell=lambda progress: None).messages)
"""
COUNT = 30_000
Messages = list[tuple[bytes | None, bytes]]  # key and value
TEXTS = [f"line {number}\nwith \"more\", text behind it" for number in range(COUNT)]


def lines(folder: Path) -> Messages:
    found = [text.replace("\n", " ").encode() for text in TEXTS]
    (folder / "all.txt").write_bytes(b"\n".join(found))
    return [(None, line) for line in found]


def ndjson(folder: Path) -> Messages:
    found = [json.dumps({"id": number, "text": text}).encode() for number, text in enumerate(TEXTS)]
    (folder / "all.ndjson").write_bytes(b"\n".join(found) + b"\n")
    return [(b"%d" % number, line) for number, line in enumerate(found)]


def rows_of_csv(folder: Path) -> Messages:
    """Three files, so three splits; every row goes over a line break."""
    for part in range(3):
        with (folder / f"{part}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerows([("id", "text"), *((number, TEXTS[number]) for number in range(part, COUNT, 3))])
    return [(b"%d" % number, json.dumps({"id": str(number), "text": text}, separators=(",", ":")).encode()) for number, text in enumerate(TEXTS)]


def rows_of_parquet(folder: Path) -> Messages:
    """Two files with six row groups each, in two folders, with an export's columns."""
    for part in range(2):
        numbers = range(part, COUNT, 2)
        (folder / f"date={part}").mkdir()
        table = pa.table({"value": pa.array([TEXTS[number].encode() for number in numbers]), "key": pa.array([b"%d" % number for number in numbers]),
                          "partition": pa.array([number % 3 for number in numbers], pa.int32())})
        pyarrow.parquet.write_table(table, folder / f"date={part}" / "all.parquet", row_group_size=2500)
    return [(b"%d" % number, text.encode()) for number, text in enumerate(TEXTS)]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("made", "key"), [(lines, ""), (ndjson, "id"), (rows_of_csv, "id"), (rows_of_parquet, "")])
def test_killed_at_several_points_and_run_again_everything_is_there_once(tmp_path: Path, made: Callable[[Path], Messages], key: str) -> None:
    """kill -9 after so many eleventh parts of the messages; a second run of the whole adds nothing, nor does one without its notes."""
    files = tmp_path / "files"
    files.mkdir()
    expected = made(files)
    memory = InMemoryTransport()
    memory.create_topic("to", 3)

    def stored() -> int:
        return sum(len(memory.messages("to", partition)) for partition in range(3))

    with served(memory) as address:
        named = [files] if made is rows_of_parquet else sorted(files.iterdir())
        command = [sys.executable, "-c", PROGRAM, address, str(tmp_path), key, *map(str, named)]
        for point in range(1, 11) if LONG else (1, 4, 10) if made is lines else (4,):
            process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
            try:
                wait_until(lambda wanted=COUNT * point // 11: stored() >= wanted, timeout_seconds=60, what=f"point {point}", interval_seconds=0.002)
            finally:
                process.send_signal(signal.SIGKILL)
                process.wait(10)
        for _ in range(2):
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
            assert (0, f"{COUNT}\n") == (done.returncode, done.stdout), done.stderr
        (tmp_path / "load.json").unlink()
        assert 0 == subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60).returncode
    found = [(message.key, message.value) for partition in range(3) for message in memory.messages("to", partition)]
    assert sorted(expected, key=str) == sorted(found, key=str)
