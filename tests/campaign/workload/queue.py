"""The queue face by plain HTTP, as ``curl`` users speak it."""

from __future__ import annotations

from tests.campaign.history import FAILED, OK, Missed, Read, Sent

from .client import FILLER, HttpClient, Reader, Setting

PAUSE_SECONDS = 0.1


class QueueProducer(HttpClient):
    """Sends one message at a time and repeats none."""

    def __init__(self, name: str, setting: Setting, topic: str) -> None:
        super().__init__(name, setting)
        self._topic, self._number = topic, 0
        self._producer_id = self.insist("POST", "/producer/register", json={"topic": topic})["producer_id"]

    def work(self) -> float:
        number, began = self._number, self.now()
        self._number += 1
        body = {"topic": self._topic, "producer_id": self._producer_id, "message": f"{self.name}:{number}|{FILLER}"}
        answer = self.call("POST", "/producer/produce", json=body)
        partition, offset = (answer.body["partition_id"], answer.body["offset"]) if answer.outcome == OK else (None, None)
        self.history.sent.append(Sent(self.name, number, self._topic, partition, offset, answer.outcome, began, self.now()))
        return 0.01 if answer.outcome == OK else PAUSE_SECONDS


class QueueReader(HttpClient, Reader):
    """Dequeues. With request ids it repeats a call until it is answered, so nothing may be missed; without them an answer lost is a message lost."""

    def __init__(self, name: str, setting: Setting, topic: str, *, with_request_ids: bool) -> None:
        super().__init__(name, setting)
        self._topic, self._with_request_ids, self._number = topic, with_request_ids, 0
        self._consumer_id = self.insist("POST", "/consumer/register", json={"topic": topic})["consumer_id"]
        self._empty_at = -1.0

    def work(self) -> float:
        arguments = {"topic": self._topic, "consumer_id": self._consumer_id}
        if self._with_request_ids:
            arguments["request_id"] = f"{self.name}-{self._number}"
        began = self.now()
        answer = self.call("GET", "/consumer/consume", good=(200, 400), params=arguments)
        if answer.outcome == OK and answer.status == 200:
            value = answer.body["message"].partition("|")[0]
            self.history.read.append(Read(self.name, 0, self._topic, answer.body["partition_id"], answer.body["offset"], value, self.now()))
            self.progress += 1
            self._number += 1
            return 0.0
        if answer.outcome == OK:
            if not answer.body.get("empty"):
                self.odd(f"consume: status 400: {answer.body}")
            self._empty_at = began
        elif answer.outcome != FAILED and not self._with_request_ids:
            self.history.missed.append(Missed(self.name, self._topic, began))
        return PAUSE_SECONDS

    def is_at_end(self, ends: dict[tuple[str, int], int], since: float) -> bool:
        return self._empty_at >= since
