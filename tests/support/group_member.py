"""A member of a consumer group as a process of its own: writes a line for each message, when it got it, until it is ended.

    python -m tests.support.group_member BOOTSTRAP TOPIC GROUP FILE
"""

from __future__ import annotations

import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from myqueue import Message, MyConsumer


@dataclass(frozen=True)
class Read:
    """One line: which message, what it says, and when it came (seconds of the machine's monotonic clock)."""

    partition: int
    offset: int
    at: float
    value: str


def line_of(message: Message) -> str:
    return f"{message.partition} {message.offset} {time.monotonic():.3f} {message.text()}\n"


def reads_in(file: Path) -> list[Read]:
    """What a member has written so far; a line that is not whole yet is left out."""
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [Read(int(partition), int(offset), float(at), value) for partition, offset, at, value in (line.split(" ", 3) for line in lines)]


def main(bootstrap: str, topic: str, group: str, file: str) -> None:
    with open(file, "w", buffering=1, encoding="utf-8") as out, \
            MyConsumer([topic], bootstrap, group=group, session_timeout_seconds=6.0, auto_commit_seconds=0.3) as consumer:
        signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
        for message in consumer.get_next():
            out.write(line_of(message))


if __name__ == "__main__":
    main(*sys.argv[1:])
