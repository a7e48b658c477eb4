"""The switchboard in a process of its own, as a network is: what passes through it waits for no client of the campaign.

In the process of the clients every piece of every call, and of every statement to a database, would wait for the interpreter, which
dozens of their threads want too: managers would elect nobody because the campaign is busy. Orders are lines of JSON on its standard
input, each answered by a line; the end of the input is the end of the process.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.campaign.switchboard import CALL_SECONDS, Rule, Switchboard

ROOT = Path(__file__).parents[2]
ANSWER_SECONDS = 6 * CALL_SECONDS  # an order may close many relays, each within CALL_SECONDS


class ExchangeError(RuntimeError):
    """The switchboard has not done what it was told."""


class Exchange:
    """A switchboard elsewhere. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._turn, self._rules = threading.Lock(), list[Rule]()
        self._process = subprocess.Popen([sys.executable, "-m", "tests.campaign.exchange"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         text=True, bufsize=1, start_new_session=True)

    def add(self, name: str, target_port: int) -> int:
        """Put a relay before a node's port; the port to call instead."""
        return int(self._ask("add", name, target_port))

    def refuse(self, name: str) -> None:
        """The node is down: nobody listens any more, and what was open is reset."""
        self._ask("refuse", name)

    def accept(self, name: str) -> None:
        """The node is started: listen again."""
        self._ask("accept", name)

    def put(self, rule: Rule) -> Rule:
        """A rule holds from now on, for connections that are open too."""
        with self._turn:
            self._rules.append(rule)
            self._order("put", len(self._rules) - 1, asdict(rule))
        return rule

    def lift(self, rule: Rule) -> None:
        self._ask("lift", next(number for number, one in enumerate(self._rules) if one is rule))

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(ANSWER_SECONDS)
        finally:
            self._process.kill()
            self._process.wait(CALL_SECONDS)
            self._process.stdout.close()

    def _ask(self, order: str, *arguments: Any) -> Any:
        with self._turn:
            return self._order(order, *arguments)

    def _order(self, order: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([order, *arguments]) + "\n")
        readable, _, _ = select.select([self._process.stdout], [], [], ANSWER_SECONDS)
        answer = json.loads(self._process.stdout.readline() or "{}") if readable else {}
        if not answer:
            self._process.kill()  # its answer, should it come late, would be taken for that of the next order
        if "done" not in answer:
            raise ExchangeError(f"{order} {arguments}: {answer.get('error', 'no answer')}")
        return answer["done"]


def serve() -> None:
    """Carry out orders of the process that started this one until there is no more input."""
    rules: dict[int, Rule] = {}
    with contextlib.closing(Switchboard(os.getppid())) as board:
        does: dict[str, Callable[..., Any]] = {
            "add": board.add, "refuse": board.refuse, "accept": board.accept,
            "put": lambda number, rule: rules.update({number: board.put(Rule(**rule))}), "lift": lambda number: board.lift(rules.pop(number))}
        for line in sys.stdin:
            order, *arguments = json.loads(line)
            try:
                answer = {"done": does[order](*arguments)}
            except Exception as error:  # noqa: BLE001 (it is told, and raised there)
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
