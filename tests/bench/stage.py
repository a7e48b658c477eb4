"""What a run needs, started when it is first asked for, in one folder that is gone afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from .contenders.base import Contender
from .contenders.myqueue import MyQueue
from .contenders.nats import Nats
from .contenders.postgres import PostgresAlone
from .contenders.rabbitmq import RabbitMq
from .contenders.redis import Redis
from .contenders.sketch import Sketch
from .processes import NotInstalledError

C = TypeVar("C", bound=Contender)
PREFIX = "myqueue-bench-"
DISK = Path("/var/tmp")  # not /tmp, which may be memory
PEERS: dict[str, Callable[[Path, ExitStack], Contender]] = {"redis": Redis, "rabbitmq": RabbitMq, "nats": Nats}
ENDING_SIGNALS = signal.SIGINT, signal.SIGTERM


class Stage:
    """Use it as a context; only the main thread may, since servers end with the thread that started them.

    Args:
        peers: names of :data:`PEERS`; one that is not installed, or does not start, is left out with a word, here and in ``left_out``.
        parent: where the folder is made; it should be on the disk that is to be measured.
    """

    def __init__(self, peers: Sequence[str] = (), parent: Path | None = None) -> None:
        self._wanted, self._parent = peers, parent or (DISK if DISK.is_dir() else Path(tempfile.gettempdir()))
        self._stack = ExitStack()
        self.folder = Path()
        self.left_out: dict[str, str] = {}
        self._started: list[Contender] = []

    def __enter__(self) -> Stage:
        signal.signal(signal.SIGTERM, _end)
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self._parent))
        self.folder.chmod(0o711)  # PostgreSQL runs as another account where we are root
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        return self

    def __exit__(self, *exc: object) -> None:
        before = {number: signal.signal(number, signal.SIG_IGN) for number in ENDING_SIGNALS}  # a second Ctrl-C leaves nothing behind
        try:
            self._stack.close()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @cached_property
    def ours(self) -> MyQueue:
        """A broker, a manager, a balancer."""
        return self._start("a cluster", lambda: MyQueue(self.folder / "cluster", self._stack))

    @cached_property
    def three(self) -> MyQueue:
        """The same with three brokers: three databases on one server and one disk."""
        return self._start("a cluster of three brokers", lambda: MyQueue(self.folder / "three", self._stack, brokers=3))

    @cached_property
    def postgres(self) -> PostgresAlone:
        settings = self.ours.settings()
        return self._start("PostgreSQL alone", lambda: PostgresAlone(self.folder / "postgres", settings, self._stack))

    @cached_property
    def sketch(self) -> Sketch:
        postgres = self.postgres
        return self._start("the sketch", lambda: Sketch(self.folder / "sketch", postgres, self._stack))

    @cached_property
    def peers(self) -> list[Contender]:
        found: list[Contender] = []
        for name in self._wanted:
            try:
                peer = self._start(name, lambda name=name: PEERS[name](self.folder / name, self._stack))
                found += [peer, *peer.others()]
            except (NotInstalledError, AssertionError, OSError, subprocess.SubprocessError) as error:
                self.left_out[name] = str(error)
                say(f"{name} is left out: {error}")
        return found

    def settle(self) -> None:
        """Nothing of what was done before is left to be written, by any server or the kernel, at the cost of what comes next."""
        for contender in self._started:
            contender.settle()
        os.sync()

    def all_roots(self) -> list[int]:
        """Every server's process, whoever is measured."""
        return [pid for contender in self._started for pids in contender.roots.values() for pid in pids]

    def _start(self, what: str, make: Callable[[], C]) -> C:
        say(f"starting {what}")
        contender = make()
        self._started.append(contender)
        return contender


def say(line: str) -> None:
    """Progress goes where it mixes with no figure."""
    print(line, file=sys.stderr, flush=True)


def _end(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)
