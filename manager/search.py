"""Searches a topic's messages by key and by the time at which they were appended, over all its partitions, a page at a time.

What must hold: the pages of a search together hold every message that is searched for and was acknowledged before the first page
was asked for, once each, ordered by (partition, offset). So the first page fixes the cut, the end of each partition by its leader's
word, and every page keeps to it. A key is looked for in all partitions: records may have named another one, and keys map anew where
partitions were added.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

from manager.brokers import Brokers
from manager.catalogue import Catalogue, Topic, partition_id
from manager.records import LEADER_WAIT_SECONDS, Records
from manager.replica import Replica
from myqueue.clock import Clock
from myqueue.errors import BadRequestError, ConflictError, MyQueueError
from myqueue.protocol import wire
from myqueue.protocol.cursor import SearchCursor, decode_cursor
from myqueue.protocol.types import NodeAddress

SCAN_MAX = 200_000  # records that a page looks at
BYTES_MAX = 4 << 20  # values, keys and headers of a page; one record always fits
PAGE_SECONDS = 2.0  # then a page ends; the call under way is waited for
ENDS_AT_ONCE = 100  # partitions whose ends a broker is asked for in one call
PARTITIONS_MAX = 1_000  # of a topic that is searched: a cursor has an end for each, and travels in a request line


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What is searched for: a key, a window of append time (``since_us`` inclusive, ``before_us`` exclusive), or both."""

    key: bytes | None = None
    since_us: int | None = None
    before_us: int | None = None

    @property
    def digest(self) -> int:
        """What a cursor remembers of it."""
        return crc32(json.dumps([None if self.key is None else self.key.hex(), self.since_us, self.before_us]).encode())


@dataclass(frozen=True, slots=True)
class Page:
    """Some of what was found, and the cursor while there may be more. It may hold nothing and have one."""

    records: list[dict[str, Any]]
    ends: tuple[int, ...]
    cursor: str | None


class Search:
    """Asks the partitions' leaders, which search in their databases, one partition after the other."""

    def __init__(self, *, replica: Replica, brokers: Brokers, records: Records, clock: Clock) -> None:
        self._replica, self._brokers, self._records, self._clock = replica, brokers, records, clock

    def page(self, name: str, query: SearchQuery, cursor: str | None, *, records_max: int) -> Page:
        """One page of a search; without a cursor the first.

        Raises:
            UnknownTopicError: no such topic.
            BadRequestError: too many partitions, or the cursor is of another search or none.
            ConflictError: the topic of the cursor was deleted, and created again.
            UnavailableError: a partition's leader could not be asked; ask for the same page again.
        """
        end = self._clock.monotonic() + PAGE_SECONDS
        topic = self._replica.certain(lambda known: self._topic(known, name))
        at = self._begun(topic, query) if cursor is None else self._checked(topic, query, decode_cursor(cursor))
        records: list[dict[str, Any]] = []
        scanned = size = 0
        first = at
        while at.partition < len(at.ends) and len(records) < records_max and scanned < SCAN_MAX and size < BYTES_MAX and (
                at is first or self._clock.monotonic() < end):
            if at.ends[at.partition] <= (at.offset or 0):
                at = replace(at, partition=at.partition + 1, offset=None)
                continue
            try:
                found = self._ask(topic, query, at, records_max=records_max - len(records), bytes_max=BYTES_MAX - size, scan_max=SCAN_MAX - scanned)
            except MyQueueError:
                if at.partition == first.partition and at.offset == first.offset:
                    raise
                break  # what was found is answered; the next page begins here, and with the error if it lasts
            records += [{"partition": at.partition, **one} for one in found["records"]]
            scanned += found["scanned"]
            size += sum(_size(one) for one in found["records"])
            at = replace(at, offset=found["next_offset"])
        if at.partition < len(at.ends) and at.ends[at.partition] <= (at.offset or 0):
            at = replace(at, partition=at.partition + 1, offset=None)
        return Page(records, at.ends, at.encode() if at.partition < len(at.ends) else None)

    @staticmethod
    def _topic(known: Catalogue, name: str) -> Topic:
        topic = known.topic(name)
        if len(topic.partitions) > PARTITIONS_MAX:
            raise BadRequestError(f"Topic '{name}' has {len(topic.partitions)} partitions: topics of up to {PARTITIONS_MAX} are searched", topic=name)
        return topic

    def _begun(self, topic: Topic, query: SearchQuery) -> SearchCursor:
        ends, failures = self._records.ask_leaders(topic, topic.partitions, lambda broker_id, address, group: self._brokers.ends(
            broker_id, address, group, before_us=query.before_us), at_once=ENDS_AT_ONCE, wait_seconds=LEADER_WAIT_SECONDS)
        if failures:
            raise failures[0]
        return SearchCursor(topic.topic_id, query.digest, tuple(ends[row.partition] for row in topic.partitions))

    @staticmethod
    def _checked(topic: Topic, query: SearchQuery, cursor: SearchCursor) -> SearchCursor:
        if cursor.query != query.digest:
            raise BadRequestError("the cursor is of another search: give the key and the times of the first page with it", argument="cursor")
        if cursor.topic_id != topic.topic_id:
            raise ConflictError(f"Topic '{topic.name}' was deleted and created again since the search began: begin without a cursor",
                                topic=topic.name)
        if len(cursor.ends) > len(topic.partitions):
            raise BadRequestError("the cursor has more partitions than the topic: begin without one", argument="cursor")
        return cursor

    def _ask(self, topic: Topic, query: SearchQuery, at: SearchCursor, *, records_max: int, bytes_max: int, scan_max: int) -> dict[str, Any]:
        row = topic.partitions[at.partition]
        body = {"offset": at.offset, "since": query.since_us, "end": at.ends[at.partition], "max_records": records_max, "max_bytes": bytes_max,
                "max_scanned": scan_max, **({} if query.key is None else wire.value_to_json(query.key, "key"))}

        def ask(broker_id: int, address: NodeAddress) -> dict[str, Any]:
            return self._brokers.search(broker_id, address, partition_id(row), body)

        return self._records.at_leader(topic, row, ask)


def _size(record: dict[str, Any]) -> int:
    """About how many bytes a record adds to a page."""
    return sum(len(record.get(name) or "") for name in ("value", "value_base64", "key", "key_base64")) + len(str(record.get("headers", "")))
