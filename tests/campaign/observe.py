"""The last look: what every replica and every manager has on its disk, and which topics there are."""

from __future__ import annotations

import time
from typing import Any

import requests

from tests.campaign.checkers.consumers import STUCK_SECONDS
from tests.campaign.history import OK, Entry, History, Stored, place
from tests.campaign.lab import Lab

ASK_SECONDS = 15.0
PAUSE_SECONDS = 0.2
MESSAGES = """SELECT topic, partition, msg_offset, split_part(convert_from(value, 'UTF8'), '|', 1) FROM messages
              WHERE topic = ANY (%s) ORDER BY topic, partition, msg_offset"""
ENTRIES = """SELECT t.name, e.partition, e.lsn, e.epoch, encode(e.chain, 'hex') FROM log_entry e JOIN topic t USING (topic_id)
             JOIN partition_commit c USING (topic_id, partition) JOIN partition_state h USING (topic_id, partition)
             WHERE e.lsn >= h.start_lsn AND e.lsn < c.commit_lsn AND t.name = ANY (%s) ORDER BY 1, 2, 3"""
TRIMS = "SELECT t.name, c.partition, c.trim_offset FROM partition_commit c JOIN topic t USING (topic_id)"
COMMANDS = "SELECT index, term, encode(chain, 'hex') FROM wal WHERE index <= (SELECT commit_index FROM raft_state) ORDER BY index"


def look(lab: Lab, history: History, topics: list[str]) -> None:
    """Fill in ``stored``, ``entries`` and ``topics``. The cluster is up and quiet."""
    for broker in lab.nodes.brokers:
        with lab.database(broker) as cursor:
            _await_trims(cursor, history)
            cursor.execute(MESSAGES, (topics,))
            for topic, partition, offset, value in cursor.fetchall():
                history.stored.setdefault(place(topic, partition), {}).setdefault(broker, []).append(Stored(offset, value))
            cursor.execute(ENTRIES, (topics,))
            for topic, partition, lsn, epoch, chain in cursor.fetchall():
                history.entries.setdefault(place(topic, partition), {}).setdefault(broker, []).append(Entry(lsn, epoch, chain))
    for manager in lab.nodes.managers:
        with lab.database(manager) as cursor:
            cursor.execute(COMMANDS)
            history.entries.setdefault("managers", {})[manager] = [Entry(*row) for row in cursor.fetchall()]
    history.topics = _topics(lab)


def _await_trims(cursor: Any, history: History) -> None:
    """A replica shows a trim with its next fold; one that does not in all this time is left to the checkers."""
    deadline = time.monotonic() + STUCK_SECONDS
    while time.monotonic() < deadline:
        cursor.execute(TRIMS)
        if all(offset >= history.trimmed_before(place(topic, partition), OK) for topic, partition, offset in cursor.fetchall()):
            return
        time.sleep(PAUSE_SECONDS)


def _topics(lab: Lab) -> set[str] | None:
    """By a fresh read; None where the managers answer none in all the time they have for healing."""
    deadline = time.monotonic() + STUCK_SECONDS
    while time.monotonic() < deadline:
        answer = requests.get(f"{lab.url}/v1/topics", params={"fresh": "true"}, timeout=ASK_SECONDS)
        if answer.status_code == 200:
            return {topic["topic"] for topic in answer.json()["topics"]}
        time.sleep(PAUSE_SECONDS)
    return None
