"""Calls to the managers: the one that answered last is asked first, the next when it cannot be reached."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from myqueue.client.transport import Response, Transport, raise_for
from myqueue.errors import UnavailableError, UnreachableError

READ_TIMEOUT_SECONDS = 5.0


class Managers:
    """The managers by URL. Safe to share between threads."""

    def __init__(self, urls: Sequence[str], transport: Transport) -> None:
        self._urls, self._transport = [url.rstrip("/") for url in urls], transport
        self._first = 0

    def send(self, method: str, path: str, *, params: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None,
             body: bytes | None = None, repeatable: bool = False, read_timeout_seconds: float = READ_TIMEOUT_SECONDS) -> Response:
        """The answer of one manager, whatever its status.

        A manager that was surely not reached is passed over; a ``repeatable`` call goes on also after any other failure and
        after a 503.

        Raises:
            UnavailableError: no manager answered.
        """
        failure: UnavailableError = UnreachableError("no manager is configured")
        unavailable: Response | None = None
        first = self._first
        for place in itertools.chain(range(first, len(self._urls)), range(first)):
            try:
                answer = self._transport.request(method, self._urls[place] + path, params=params, headers=headers, body=body,
                                                 read_timeout_seconds=read_timeout_seconds, repeatable=repeatable)
            except UnavailableError as error:
                failure = error
                if not repeatable and not isinstance(error, UnreachableError):
                    raise
                continue
            if answer.status == 503 and repeatable:
                unavailable = answer
                continue
            self._first = place
            return answer
        if unavailable is not None:
            return unavailable
        raise failure

    def get(self, path: str) -> Any:
        """JSON from any manager. Raises what it answered."""
        answer = self.send("GET", path, repeatable=True)
        raise_for(answer)
        return answer.json()

    def post(self, path: str, body: bytes) -> Any:
        """Send JSON that may be sent twice; JSON back. Raises what a manager answered."""
        answer = self.send("POST", path, headers={"Content-Type": "application/json"}, body=body, repeatable=True)
        raise_for(answer)
        return answer.json()
