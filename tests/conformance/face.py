"""A client of the queue face that says what was asked when an answer is not what must be."""

from __future__ import annotations

import os
from typing import Any

import requests

from tests.support.waiting import wait_until

TIMEOUT_SECONDS = 30


class Face:
    """Calls by method and path; ``ok`` and ``refused`` hold what every answer must have (rule 4)."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self._session = requests.Session()
        self._session.trust_env = False
        if os.environ.get("MYQUEUE_TOKEN"):
            self._session.headers["Authorization"] = f"Bearer {os.environ['MYQUEUE_TOKEN']}"

    def __enter__(self) -> Face:
        return self

    def __exit__(self, *exc: object) -> None:
        self._session.close()

    def call(self, method: str, path: str, json: Any = None, **more: Any) -> requests.Response:
        return self._session.request(method, self.base_url + path, json=json, timeout=TIMEOUT_SECONDS, **more)

    def ok(self, method: str, path: str, json: Any = None, **more: Any) -> dict[str, Any]:
        """The body of a success: 200, a JSON object, status "success"."""
        answer = self.call(method, path, json, **more)
        body = _object(answer)
        assert (200, "success") == (answer.status_code, body.get("status")), f"{method} {path} {json} {more}: {answer.status_code} {body}"
        return body

    def refused(self, method: str, path: str, json: Any = None, *, status: int = 400, says: str = "", **more: Any) -> dict[str, Any]:
        """The body of a failure: the status, a JSON object, status "failure" and a message that informs."""
        answer = self.call(method, path, json, **more)
        body = _object(answer)
        assert (status, "failure") == (answer.status_code, body.get("status")), f"{method} {path} {json} {more}: {answer.status_code} {body}"
        assert isinstance(body.get("message"), str)
        assert len(body["message"]) > 5, body
        assert says in body["message"], body
        return body

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
