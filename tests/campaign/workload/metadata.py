"""Commands on the metadata, and a watch on who says that it leads."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import requests

from myqueue.protocol import routes
from tests.campaign.checkers.register import CREATE, CREATED, EXISTS, REGISTER, THERE_ALREADY
from tests.campaign.history import OK, Command, Led

from .client import Client, HttpClient, Setting

NAME_SECONDS = 2.0  # how long clients contend for one name
PAUSE_SECONDS = 0.3
WATCH_SECONDS = 0.1
LEADING = b'"event": "leading"'
WATCH_PARTITIONS_SECONDS = 0.5
ASK_SECONDS = 1.0


class Registrar(HttpClient):
    """Creates names that others create at the same time, asks whether recent ones are there, and has ids given."""

    def __init__(self, name: str, setting: Setting, topic: str, seed: int) -> None:
        super().__init__(name, setting)
        self._topic, self._chance, self._made = topic, random.Random(f"{seed} {name}"), -1

    def work(self) -> float:
        newest = int(self.now() / NAME_SECONDS)
        if newest != self._made:
            self._made = newest
            self._create(f"name-{newest}")
        self._exists(f"name-{max(0, newest - self._chance.randrange(3))}")
        self._register()
        return PAUSE_SECONDS

    def _create(self, key: str) -> None:
        self._note(CREATE, key, lambda: self.call("POST", routes.TOPICS, json={"topic": key}, good=(201, 409)),
                   lambda answer: CREATED if answer.status == 201 else THERE_ALREADY)

    def _exists(self, key: str) -> None:
        self._note(EXISTS, key, lambda: self.call("GET", routes.TOPICS, params={"fresh": "true"}),
                   lambda answer: any(topic["topic"] == key for topic in answer.body["topics"]))

    def _register(self) -> None:
        self._note(REGISTER, self._topic, lambda: self.call("POST", routes.PRODUCERS, json={"topics": [self._topic], "create": False}),
                   lambda answer: answer.body["producers"][self._topic]["producer_id"])

    def _note(self, kind: str, key: str, ask: Any, result: Any) -> None:
        began = self.now()
        answer = ask()
        told = result(answer) if answer.outcome == OK else None
        self.history.commands.append(Command(self.name, kind, key, answer.outcome, told, began, self.now()))


class ManagerWatch(Client):
    """Reads in one manager's log which terms it led: a leadership may be over sooner than anybody asks for it."""

    def __init__(self, node: str, setting: Setting, log_file: Path) -> None:
        super().__init__(f"watch of {node}", setting)
        self._node, self._log_file, self._read = node, log_file, 0

    def work(self) -> float:
        with self._log_file.open("rb") as log:
            if os.fstat(log.fileno()).st_size < self._read:  # a new file, since a start
                self._read = 0
            log.seek(self._read)
            for line in log:
                if not line.endswith(b"\n"):
                    break  # it is being written
                self._read += len(line)
                if LEADING in line:
                    self.history.led.append(Led("managers", json.loads(line)["term"], self._node, self.now()))
        return WATCH_SECONDS


class PartitionWatch(Client):
    """Asks one broker, past the relays, which partitions it leads and in which epoch."""

    def __init__(self, node: str, setting: Setting, url: str, partitions: list[tuple[str, int]]) -> None:
        super().__init__(f"watch of {node}", setting)
        self._node, self._url, self._partitions = node, url, partitions
        self._seen: set[tuple[str, int]] = set()
        self._session = requests.Session()

    def work(self) -> float:
        for topic, partition in self._partitions:
            status = _ask(self._session, f"{self._url}/raft_status", topic=topic, partition=partition)
            group, term = f"{topic}/{partition}", status.get("raft_term")
            if status.get("is_leader") and (group, term) not in self._seen:
                self._seen.add((group, term))
                self.history.led.append(Led(group, term, self._node, self.now()))
        return WATCH_PARTITIONS_SECONDS


def _ask(session: requests.Session, url: str, **arguments: Any) -> dict[str, Any]:
    """What a node says of itself; nothing where it says nothing in time."""
    try:
        answer = session.get(url, params=arguments, timeout=ASK_SECONDS)
        return answer.json() if answer.status_code == 200 else {}
    except (requests.RequestException, ValueError):
        return {}
