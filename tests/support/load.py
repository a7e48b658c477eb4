"""Load on a real cluster, with a history of what was acknowledged: what a fault test compares with what is there afterwards."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import requests

from myqueue import Message, MyConsumer, MyProducer
from myqueue.errors import UnavailableError
from tests.support.waiting import wait_until

BATCH = 200
PAUSE_SECONDS = 0.05  # between calls: a load, not a flood. What is tested shares the machine with it, and every message is looked for in the end
CALL_SECONDS = 15.0


@dataclass
class Worker:
    """A thread that works, with pauses, until it is told to stop; what broke it is raised by ``join``."""

    work: Callable[[], None]
    pause_seconds: float = 0.0
    stopping: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None

    def start(self) -> Worker:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            while not self.stopping.is_set():
                self.work()
                self.stopping.wait(self.pause_seconds)
        except BaseException as error:  # noqa: BLE001 - raised again by join
            self.error = error

    def join(self, timeout_seconds: float) -> None:
        self.stopping.set()
        self._thread.join(timeout_seconds)
        assert not self._thread.is_alive(), "a load worker does not end"
        if self.error is not None:
            raise self.error


class SdkLoad:
    """One producer of numbered messages and one consumer of them, by the SDK."""

    def __init__(self, bootstrap: str, topic: str, *, token: str | None = None) -> None:
        self.topic, self._bootstrap = topic, bootstrap
        self._producer = MyProducer(topics=[topic], broker=bootstrap, token=token)
        self._consumer = MyConsumer(topics=[topic], broker=bootstrap, token=token)
        self.sent = 0
        self.delivered = 0
        self.received: list[Message] = []
        self._workers = [Worker(self._send, PAUSE_SECONDS).start(), Worker(self._receive).start()]

    def _send(self) -> None:
        waiting = []
        for _ in range(BATCH):
            waiting.append(self._producer.send(self.topic, b"%d" % self.sent, key=b"%d" % (self.sent % 7)))
            self.sent += 1
        for delivery in waiting:
            delivery.result(CALL_SECONDS * 6)
        self.delivered += len(waiting)

    def _receive(self) -> None:
        with contextlib.suppress(UnavailableError):  # so it says that its silence is not that of an empty topic
            for message in self._consumer.get_next(timeout_seconds=0.5):
                self.received.append(message)

    def finish(self) -> None:
        """Send no more, deliver all, and let the consumer read to the end."""
        self._workers[0].join(CALL_SECONDS * 8)
        self._producer.stop(CALL_SECONDS * 4)
        self.delivered = self.sent
        wait_until(lambda: len(self.received) >= self.sent, timeout_seconds=CALL_SECONDS * 4, what=f"all messages of {self.topic}")
        self._workers[1].join(CALL_SECONDS)
        self._consumer.stop()

    def faults(self) -> list[str]:
        """What is wrong with what the consumer saw: every message once, and in order within its key."""
        seen = [int(message.value) for message in self.received]
        found = [f"{self.topic}: {number} came {count} times" for number, count in Counter(seen).items() if count != 1]
        found += [f"{self.topic}: {number} was acknowledged and never came" for number in sorted(set(range(self.sent)) - set(seen))[:10]]
        for key in range(7):
            of_key = [number for number in seen if number % 7 == key]
            if of_key != sorted(of_key):
                found.append(f"{self.topic}: key {key} is out of order")
        return found


class QueueFaceLoad:
    """One producer of unique messages by plain HTTP, which never repeats a call."""

    def __init__(self, url: str, topic: str, *, token: str | None = None) -> None:
        self.topic, self._url = topic, url
        self._session = requests.Session()
        if token:
            self._session.headers["Authorization"] = f"Bearer {token}"
        self._producer_id = self._post("/producer/register", topic=topic)["producer_id"]
        self.acknowledged: list[str] = []
        self.unknown: list[str] = []
        self.refused: list[str] = []
        self._worker = Worker(self._produce, PAUSE_SECONDS).start()

    def _post(self, path: str, **arguments: object) -> dict:
        return self._session.post(self._url + path, json=arguments, timeout=CALL_SECONDS).json()

    def _produce(self) -> None:
        text = secrets.token_hex(8)
        try:
            answer = self._post("/producer/produce", topic=self.topic, producer_id=self._producer_id, message=text)
        except requests.RequestException:  # the balancer itself is gone: nobody says what happened
            self.unknown.append(text)
            self._worker.stopping.wait(0.2)
            return
        if answer["status"] == "success":
            self.acknowledged.append(text)
            return
        (self.unknown if answer.get("outcome") == "unknown" else self.refused).append(text)

    def finish(self) -> None:
        self._worker.join(CALL_SECONDS * 2)

    def stored(self) -> list[str]:
        """Everything in the topic, read through the queue face by a consumer of its own."""
        consumer_id = self._post("/consumer/register", topic=self.topic)["consumer_id"]
        found: list[str] = []
        arguments = {"topic": self.topic, "consumer_id": consumer_id}
        while True:
            answer = self._session.get(f"{self._url}/consumer/consume", params=arguments, timeout=CALL_SECONDS)
            if answer.status_code == 400 and answer.json().get("empty"):
                return found
            assert 200 == answer.status_code, answer.text
            found.append(answer.json()["message"])

    def faults(self) -> list[str]:
        """What is wrong: acknowledged and lost, stored twice, or refused as not done and stored all the same."""
        counts = Counter(self.stored())
        found = [f"{text} was acknowledged and is lost" for text in self.acknowledged if counts[text] == 0]
        found += [f"{text} is stored {count} times" for text, count in counts.items() if count > 1]
        return found + [f"{text} was answered not_done and is stored" for text in self.refused if counts[text]]
