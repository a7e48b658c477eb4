"""HTTP calls to the balancer."""

from __future__ import annotations

import time
from typing import Any

import requests

from myqueue.errors import NOT_DONE, UNKNOWN

from .face import CALL_SECONDS, DiscrepancyError


class Http:
    """Calls to the balancer, in one thread.

    What was refused because too much is under way is sent again, as clients do: what surely was not done, and with ``is_repeatable`` also what
    may have been done, since all of it may be done twice.
    """

    def __init__(self, url: str, token: str | None, *, is_repeatable: bool = False) -> None:
        self._url, self._session = url, requests.Session()
        self._outcomes = (NOT_DONE, UNKNOWN) if is_repeatable else (NOT_DONE,)
        self._session.trust_env = False
        if token:
            self._session.headers["Authorization"] = f"Bearer {token}"

    def call(self, method: str, path: str, body: Any = None, *, status: int = 200, **more: Any) -> dict[str, Any]:
        """The JSON of the answer; ``more`` as for ``requests``. Raises DiscrepancyError for another status."""
        got, told = self.ask(method, path, body, **more)
        if got != status:
            raise DiscrepancyError(f"{method} {path} {body or more.get('params')}: {got} {told}")
        return told

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, dict[str, Any]]:
        """Status and JSON of the answer."""
        answer = self.answer(method, path, json=body, **more)
        return answer.status_code, answer.json()

    def answer(self, method: str, path: str, **more: Any) -> requests.Response:
        """The last answer."""
        end = time.monotonic() + CALL_SECONDS
        while True:
            answer = self._session.request(method, self._url + path, timeout=CALL_SECONDS, **more)
            if answer.status_code not in (429, 503) or _outcome(answer) not in self._outcomes or time.monotonic() > end:
                return answer
            time.sleep(float(answer.headers["Retry-After"]) / 2)


def _outcome(answer: requests.Response) -> Any:
    told = answer.json()
    return told.get("error", told).get("outcome")
