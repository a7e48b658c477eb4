"""The last look: what every replica and every manager has on its disk, and which topics there are."""

from __future__ import annotations

import time

import requests

from tests.campaign.checkers.consumers import STUCK_SECONDS
from tests.campaign.history import Entry, History, Stored, place
from tests.campaign.lab import Lab

ASK_SECONDS = 15.0
PAUSE_SECONDS = 0.2
MESSAGES = """SELECT topic, partition, msg_offset, split_part(convert_from(value, 'UTF8'), '|', 1) FROM messages
              WHERE topic = ANY (%s) ORDER BY topic, partition, msg_offset"""
ENTRIES = """SELECT t.name, e.partition, e.lsn, e.epoch, encode(e.chain, 'hex') FROM log_entry e JOIN topic t USING (topic_id)
             JOIN partition_commit c USING (topic_id, partition) WHERE e.lsn < c.commit_lsn AND t.name = ANY (%s) ORDER BY 1, 2, 3"""
COMMANDS = "SELECT index, term, encode(chain, 'hex') FROM wal WHERE index <= (SELECT commit_index FROM raft_state) ORDER BY index"


def look(lab: Lab, history: History, topics: list[str]) -> None:
    """Fill in ``stored``, ``entries`` and ``topics``. The cluster is up and quiet."""
    for broker in lab.nodes.brokers:
        with lab.database(broker) as cursor:
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


def _topics(lab: Lab) -> set[str] | None:
    """By a fresh read; None where the managers answer none in all the time they have for healing."""
    deadline = time.monotonic() + STUCK_SECONDS
    while time.monotonic() < deadline:
        answer = requests.get(f"{lab.url}/v1/topics", params={"fresh": "true"}, timeout=ASK_SECONDS)
        if answer.status_code == 200:
            return {topic["topic"] for topic in answer.json()["topics"]}
        time.sleep(PAUSE_SECONDS)
    return None
