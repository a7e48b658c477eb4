"""One node under supervision: what is wanted of it, what it is doing, and what its death leads to."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..clock import Clock
from .plan import NodeSpec
from .process import NodeProcess
from .restarts import RestartPolicy

UP, PAUSED, STOPPING, DOWN, WAITING, DONE = "up", "paused", "stopping", "down", "waiting", "done"


class Node:
    """Moves by commands and by ``tick``; never blocks.

    States: down (not wanted), up (its process runs), paused, stopping, waiting (died by itself, its restart is due
    later), done (a job that ended well).
    """

    def __init__(self, spec: NodeSpec, clock: Clock, *, folder: Path, environment: Mapping[str, str],
                 policy: RestartPolicy = RestartPolicy()) -> None:
        self.spec = spec
        self.state = DOWN
        self.exits = 0  # deaths by itself since it was asked to start
        self.last_exit_code: int | None = None
        self._clock, self._folder, self._policy = clock, folder, policy
        self._environment = {**environment, **spec.environment}
        self._extra: dict[str, str] = {}
        self._process: NodeProcess | None = None
        self._since = self._due = 0.0
        self._deaths_in_a_row = 0
        self._wanted_again = False  # while it is stopping

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def is_ready(self) -> bool:
        """As far as it can be told from here: by its file or its end; a service answers for itself over HTTP."""
        if self.spec.once:
            return self.state == DONE
        if self.state != UP:
            return False
        if self.spec.ready_file is None:
            return True
        try:
            return bool(json.loads(Path(self.spec.ready_file).read_text())["pid"])
        except FileNotFoundError:
            return False

    # --- commands ---

    def start(self, environment: Mapping[str, str] | None = None) -> None:
        """Nothing happens if it runs already; a paused one stays paused. ``environment`` is added for this start and its restarts."""
        if self.state in (UP, PAUSED):
            return
        self._extra = dict(environment or {})
        self._deaths_in_a_row = self.exits = 0
        if self.state == STOPPING:  # its process must be gone first
            self._wanted_again = True
            return
        self._launch()

    def stop(self, *, lasting: bool = True) -> None:
        """Ask it to end; it stays down. Not ``lasting``: its data are deleted next."""
        self._wanted_again = False
        if self._process is None:
            self.state = DOWN
        elif self.state != STOPPING:
            self._process.signal_tree(signal.SIGCONT)
            self._process.ask_to_end(signal.SIGTERM if lasting else self.spec.discard_signal)
            self.state, self._due = STOPPING, self._clock.monotonic() + self.spec.stop_seconds

    def kill(self) -> None:
        """kill -9 of everything it consists of; it stays down."""
        self._wanted_again = False
        if self._process is None:
            self.state = DOWN
        else:
            self._process.kill()
            self.state, self._due = STOPPING, self._clock.monotonic() + self.spec.stop_seconds

    def pause(self) -> None:
        if self._process is not None and self.state == UP:
            self._process.signal_tree(signal.SIGSTOP)
            self.state = PAUSED

    def resume(self) -> None:
        if self._process is not None and self.state == PAUSED:
            self._process.signal_tree(signal.SIGCONT)
            self.state = UP

    # --- time and death ---

    def tick(self) -> str | None:
        """Notice what happened and do what is due; a sentence for the log if something did."""
        now = self._clock.monotonic()
        if self._process is not None:
            code = self._process.exit_code()
            if code is not None:
                return self._ended(code, now)
            if self.state == STOPPING and now > self._due:
                self._due = now + self.spec.stop_seconds
                self._process.kill()
                return f"did not end within {self.spec.stop_seconds:.0f} s: killed"
        elif self.state == WAITING and now >= self._due:
            self._launch()
            return f"started again as pid {self.pid}"
        return None

    def to_json(self) -> dict[str, Any]:
        """What may be shown: no command, no environment."""
        spec = self.spec
        return {"name": spec.name, "kind": spec.kind, "state": self.state, "ready": self.is_ready(), "pid": self.pid, "url": spec.url,
                "database": spec.database, "exits": self.exits, "last_exit_code": self.last_exit_code, "log": spec.log_file,
                "ready_url": spec.ready_url}

    def _launch(self) -> None:
        if self.spec.ready_file:
            Path(self.spec.ready_file).unlink(missing_ok=True)
        self._wanted_again = False
        self._process = NodeProcess(self.spec.command, environment={**self._environment, **self._extra}, folder=self._folder,
                                    log_file=Path(self.spec.log_file))
        self.state, self._since = UP, self._clock.monotonic()

    def _ended(self, code: int, now: float) -> str:
        was, self._process, self.last_exit_code = self.state, None, code
        if was == STOPPING:
            if self._wanted_again:
                self._launch()
                return f"ended with code {code} and started again as pid {self.pid}"
            self.state = DOWN
            return f"ended with code {code}"
        if self.spec.once and code == 0:
            self.state = DONE
            return "done"
        self.exits += 1
        self._deaths_in_a_row = self._policy.deaths_in_a_row(self._deaths_in_a_row, lived_seconds=now - self._since)
        delay = self._policy.delay_seconds(self._deaths_in_a_row)
        self.state, self._due = WAITING, now + delay
        return f"ended by itself with code {code}: starts again in {delay:.1f} s"
