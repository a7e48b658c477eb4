"""HTTP calls to the balancer."""

from __future__ import annotations

import time
from typing import Any

import requests

from myqueue.errors import NOT_DONE

from .face import CALL_SECONDS, DiscrepancyError


class Http:
    """Calls to the balancer, in one thread."""

    def __init__(self, url: str, token: str | None) -> None:
        self._url, self._session = url, requests.Session()
        self._session.trust_env = False
        if token:
            self._session.headers["Authorization"] = f"Bearer {token}"

    def call(self, method: str, path: str, body: Any = None, *, status: int = 200, data: bytes | None = None, headers: Any = None,
             params: Any = None) -> dict[str, Any]:
        """The JSON of the answer. Raises DiscrepancyError for another status."""
        got, told = self.ask(method, path, body, data=data, headers=headers, params=params)
        if got != status:
            raise DiscrepancyError(f"{method} {path} {body or params}: {got} {told}")
        return told

    def ask(self, method: str, path: str, body: Any = None, *, data: bytes | None = None, headers: Any = None,
            params: Any = None) -> tuple[int, dict[str, Any]]:
        """Status and JSON of the answer. What was refused because too much is under way, and surely not done, is sent again, as clients do."""
        end = time.monotonic() + CALL_SECONDS
        while True:
            answer = self._session.request(method, self._url + path, json=body, data=data, headers=headers, params=params, timeout=CALL_SECONDS)
            told = answer.json()
            if answer.status_code not in (429, 503) or told.get("error", told).get("outcome") != NOT_DONE or time.monotonic() > end:
                return answer.status_code, told
            time.sleep(float(answer.headers["Retry-After"]) / 2)
