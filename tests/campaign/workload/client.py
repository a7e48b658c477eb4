"""What all clients of a campaign share: a thread that works until told to stop, and plain HTTP with the outcome of each call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import requests

from myqueue.errors import MyQueueError
from tests.campaign.history import FAILED, OK, UNKNOWN, History, Oddity, Refused
from tests.support.load import Worker

CALL_SECONDS = 15.0
JOIN_SECONDS = 90.0
SAID_MAX = 300  # of an answer that is noted
FILLER = "x" * 64


@dataclass(frozen=True, slots=True)
class Setting:
    """What every client is given."""

    bootstrap: str
    url: str
    history: History
    now: Callable[[], float]


class Client:
    """A client with a name of its own. ``work`` is one round; it returns how many seconds to wait before the next."""

    def __init__(self, name: str, setting: Setting) -> None:
        self.name, self.history, self.now = name, setting.history, setting.now
        self.setting = setting
        self._odd: set[str] = set()
        self._worker = Worker(self._round)

    def start(self) -> None:
        self._worker.start()

    def has_ended(self) -> bool:
        """Whether something broke it."""
        return self._worker.error is not None

    def ask_to_end(self) -> None:
        self._worker.stopping.set()

    def finish(self) -> None:
        """End the thread. What broke it is an oddity, or a mistake of the campaign's own, which is raised."""
        try:
            self._worker.join(JOIN_SECONDS)
        except MyQueueError as error:
            self.odd(f"ended with {type(error).__name__}: {error}")

    def work(self) -> float:
        raise NotImplementedError

    def odd(self, what: str) -> None:
        """Note an answer that no fault excuses; the same one again and again is noted once."""
        if what in self._odd:
            return
        self._odd.add(what)
        self.history.oddities.append(Oddity(self.name, what, self.now()))

    def _round(self) -> None:
        pause = self.work()
        if pause:
            self._worker.stopping.wait(pause)


class Reader(Client):
    """A client that reads to the end. ``progress`` rises with every message."""

    progress = 0

    def is_at_end(self, ends: dict[tuple[str, int], int], since: float) -> bool:
        """Whether it has got everything that was there at ``since``; ``ends`` are the partitions' ends then."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of a call: ``ok`` with what the server said, ``failed`` (surely not done) or ``unknown``."""

    outcome: str
    status: int
    body: dict[str, Any]


class HttpClient(Client):
    """A client by plain HTTP through the balancer. It never repeats a call by itself."""

    def __init__(self, name: str, setting: Setting) -> None:
        super().__init__(name, setting)
        self._session = requests.Session()

    def call(self, method: str, path: str, *, good: tuple[int, ...] = (200,), headers: dict[str, str] | None = None, **arguments: Any) -> Answer:
        """One call. A status that is neither good nor a temporary refusal is an oddity."""
        try:
            answer = self._session.request(method, self.setting.url + path, headers=headers, timeout=CALL_SECONDS, **arguments)
            body = answer.json()
        except requests.JSONDecodeError:
            self.odd(f"{method} {path}: status {answer.status_code} without JSON: {answer.text[:200]!r}")
            return Answer(UNKNOWN, answer.status_code, {})
        except requests.RequestException as error:  # nobody says what happened
            self._refused(method, path, 0, type(error).__name__)
            return Answer(UNKNOWN, 0, {})
        if answer.status_code in good:
            return Answer(OK, answer.status_code, body)
        self._refused(method, path, answer.status_code, str(body)[:SAID_MAX])
        outcome = body.get("outcome") or (body.get("error") or {}).get("outcome")
        if answer.status_code not in (429, 503):
            self.odd(f"{method} {path}: status {answer.status_code}: {str(body)[:300]}")
        return Answer(FAILED if outcome == "not_done" else UNKNOWN, answer.status_code, body)

    def _refused(self, method: str, path: str, status: int, said: str) -> None:
        self.history.refused.append(Refused(self.name, f"{method} {path}", status, said, self.now()))

    def insist(self, method: str, path: str, *, tries: int = 60, **arguments: Any) -> dict[str, Any]:
        """For setting up: repeat a call until it is answered well."""
        for _ in range(tries):
            answer = self.call(method, path, **arguments)
            if answer.outcome == OK:
                return answer.body
            self._worker.stopping.wait(0.5)
        raise AssertionError(f"{self.name}: {method} {path} was never answered well; the last answer: {answer}")
