"""A client of the older faces that says what was asked when an answer is not what must be."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from typing import Any

import requests

from tests.conformance.contract import MAY_BE_TOLD, PARTITION, QUEUE, WORDS, Call
from tests.conformance.shapes import Shape, misfits
from tests.support.waiting import wait_until

TIMEOUT_SECONDS = 30


class Face:
    """Calls by method and path; ``ok`` and ``refused`` hold what every answer of the queue face must have, ``succeeds`` and ``fails`` what one must
    have by the contract's table.
    """

    answers = itertools.count()  # of all clients of this process

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self._session = requests.Session()
        self._session.trust_env = False
        if os.environ.get("MYQUEUE_TOKEN"):
            self._session.headers["Authorization"] = f"Bearer {os.environ['MYQUEUE_TOKEN']}"

    @property
    def headers(self) -> dict[str, str]:
        """What every call must show, for a client that is not this one."""
        return {name: str(value) for name, value in self._session.headers.items() if name == "Authorization"}

    def __enter__(self) -> Face:
        return self

    def __exit__(self, *exc: object) -> None:
        self._session.close()

    def call(self, method: str, path: str, json: Any = None, **more: Any) -> requests.Response:
        next(self.answers)
        return self._session.request(method, self.base_url + path, json=json, timeout=TIMEOUT_SECONDS, **more)

    def ok(self, method: str, path: str, json: Any = None, *, face: str = QUEUE, status: int = 200, **more: Any) -> dict[str, Any]:
        """The body of a success: the status, a JSON object, status "success"."""
        return self._told(method, path, json, status, WORDS[face][0], more)

    def refused(self, method: str, path: str, json: Any = None, *, face: str = QUEUE, status: int = 400, says: str = "",
                **more: Any) -> dict[str, Any]:
        """The body of a failure: the status, a JSON object, status "failure" and a message that informs; of the partition face also as the reason."""
        body = self._told(method, path, json, status, WORDS[face][1], more)
        assert isinstance(body.get("message"), str)
        assert len(body["message"]) > 5, body
        assert says in body["message"], body
        if face == PARTITION:
            assert body["message"] == body["reason"], body
        return body

    def succeeds(self, call: Call, json: Any = None, **more: Any) -> dict[str, Any]:
        """The body of a success, which has exactly the fields that the table says."""
        body = self.ok(call.method, call.path, json, face=call.face, status=call.status, **more)
        self._fits(call, call.success, body)
        return body

    def fails(self, call: Call, json: Any = None, *, says: str = "", **more: Any) -> dict[str, Any]:
        """The body of a mistake's answer, which has no field that is not agreed."""
        body = self.refused(call.method, call.path, json, face=call.face, says=says, **more)
        told: Mapping[str, Shape] = {"status": str, "message": str, **({"reason": str} if call.face == PARTITION else {}), **MAY_BE_TOLD}
        self._fits(call, {name: shape for name, shape in told.items() if name in body}, body)
        return body

    def _told(self, method: str, path: str, json: Any, status: int, word: str, more: dict[str, Any]) -> dict[str, Any]:
        answer = self.call(method, path, json, **more)
        body = _object(answer)
        asked = f"{method} {path} {json} {more}"[:2_000]
        assert (status, word) == (answer.status_code, body.get("status")), f"{asked}: {answer.status_code} {body}"
        return body

    @staticmethod
    def _fits(call: Call, shape: Mapping[str, Shape], body: dict[str, Any]) -> None:
        assert [] == misfits(dict(shape), body), f"{call}: {body}"

    # --- the usual steps ---

    def producer(self, topic: str) -> int:
        return int(self.ok("POST", "/producer/register", {"topic": topic})["producer_id"])

    def consumer(self, topic: str, **more: Any) -> int:
        return int(self.ok("POST", "/consumer/register", {"topic": topic, **more})["consumer_id"])

    def both(self, topic: str, partitions: int = 1) -> tuple[int, int]:
        """A new topic, a producer and a consumer of it."""
        self.ok("POST", "/topics", {"topic": topic, "partitions": partitions})
        return self.producer(topic), self.consumer(topic)

    def produce(self, topic: str, producer_id: int, message: str, **more: Any) -> dict[str, Any]:
        return self.ok("POST", "/producer/produce", {"topic": topic, "producer_id": producer_id, "message": message, **more})

    def consume(self, topic: str, consumer_id: int, **more: Any) -> dict[str, Any]:
        return self.ok("GET", "/consumer/consume", {"topic": topic, "consumer_id": consumer_id, **more})

    def nothing_left(self, topic: str, consumer_id: int, **more: Any) -> None:
        """The one answer that means that every message was handed out (exactly these fields must be there)."""
        body = self.refused("GET", "/consumer/consume", {"topic": topic, "consumer_id": consumer_id, **more})
        assert {"status": "failure", "message": "No messages left to retrieve", "empty": True} == body

    def size(self, topic: str, consumer_id: int, **more: Any) -> int:
        return int(self.ok("GET", "/size", {"topic": topic, "consumer_id": consumer_id, **more})["size"])

    def sees(self, topic: str, *, path: str = "/topics") -> None:
        """The list has this topic, at once or in a moment: a read manager answers as of the index it has applied."""
        wait_until(lambda: topic in self.ok("GET", path)["topics"], what=f"{topic} in the list of topics")


def _object(answer: requests.Response) -> dict[str, Any]:
    kind = answer.headers.get("Content-Type", "").partition(";")[0]
    assert "application/json" == kind, f"{answer.status_code} {answer.headers} {answer.text[:300]}"
    body = answer.json()
    assert isinstance(body, dict), body
    return body
