"""An SDK client in a process of its own, so that its memory is its own, and several use several cores.

    python -m tests.bench.sdk_process produce|consume BOOTSTRAP TOPIC COUNT SIZE

It says ``ready``, waits for a line, works, and says what it did as JSON: ``count``, and ``growth_bytes`` of its memory at its highest.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.bench.contenders.base import CALL_SECONDS, WORK_SECONDS
from tests.bench.machine import ROOT

END_SECONDS = 10.0
RSS, HIGHEST = "VmRSS", "VmHWM"


class SdkProcess:
    """The starter's side. The stack ends it, whatever it is doing."""

    def __init__(self, work: str, bootstrap: str, log: str, count: int, size: int, stack: ExitStack) -> None:
        command = [sys.executable, "-m", "tests.bench.sdk_process", work, bootstrap, log, str(count), str(size)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True,
                                         env={**os.environ, "PYTHONPATH": str(ROOT)})
        stack.callback(self._end)
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def await_ready(self) -> None:
        assert self._line(CALL_SECONDS) == "ready", "an SDK process did not get ready"

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, Any]:
        return json.loads(self._line(WORK_SECONDS))

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.strip())
        self._lines.put("")

    def _line(self, timeout_seconds: float) -> str:
        """Raises AssertionError where it ended, or says nothing in time."""
        try:
            line = self._lines.get(timeout=timeout_seconds)
        except queue.Empty:
            raise AssertionError(f"an SDK process said nothing for {timeout_seconds:.0f} s") from None
        assert line, "an SDK process ended too early"
        return line

    def _end(self) -> None:
        self._process.kill()
        self._process.wait(END_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def main(argv: list[str]) -> None:
    work, bootstrap, log, count, size = argv[0], argv[1], argv[2], int(argv[3]), int(argv[4])
    print(json.dumps((_produce if work == "produce" else _consume)(bootstrap, log, count, size)), flush=True)
    sys.stdin.readline()  # the starter looks at its CPU time first, then ends it


def _produce(bootstrap: str, log: str, count: int, size: int) -> dict[str, int]:
    from myqueue.client.producer import MyProducer

    with MyProducer([log], bootstrap, max_block_seconds=CALL_SECONDS) as producer:
        before, value = _wait_for_go(), b"x" * size
        for _ in range(count):
            producer.send(log, value)
        producer.flush(WORK_SECONDS)
        return {"count": count, "growth_bytes": _memory(HIGHEST) - before}


def _consume(bootstrap: str, log: str, count: int, size: int) -> dict[str, int]:
    from myqueue.client.consumer import MyConsumer

    with MyConsumer([log], bootstrap) as consumer:
        before = _wait_for_go()
        seen = sum(len(message.value) == size for message in itertools.islice(consumer.get_next(CALL_SECONDS), count))
        assert seen == count, f"{count} messages were wanted and {seen} came"
        return {"count": count, "growth_bytes": _memory(HIGHEST) - before}


def _wait_for_go() -> int:
    """This process's memory at the moment before the work."""
    print("ready", flush=True)
    assert sys.stdin.readline(), "the starter is gone"
    return _memory(RSS)


def _memory(field: str) -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(field)) << 10


if __name__ == "__main__":
    main(sys.argv[1:])
