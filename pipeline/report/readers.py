"""Who reads the topics of a cut and how far each is, as the managers know it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from myqueue.client.connection import Connection
from myqueue.client.transport import understood
from myqueue.errors import MyQueueError, NotFoundError, UnavailableError, UnreachableError
from myqueue.protocol import routes
from myqueue.protocol.types import TopicPartition

from ..cluster import Manager, connected
from ..databases import Limits, rows_of, snapshot_cursor
from ..source.cuts import Cut
from .figures import NotAsked, Readers, Standing

CONSUMERS_ASKED_MAX = 200  # each is a call for each of its topics: those heard of last
ASKING_SECONDS_MAX = 60.0  # for all of them together
GROUP, CONSUMER = "group", "consumer"
# A consumer's id is registered for a topic; no call lists that.
REGISTRATIONS = "SELECT consumer_id, topic_id FROM consumer WHERE consumer_id = ANY(%(ids)s) AND topic_id = ANY(%(topic_ids)s) ORDER BY 1, 2"

Ask = Callable[..., Mapping[str, Any]]  # a path, and the query's arguments by name
Registered = Callable[[Sequence[int]], Iterable[tuple[int, str]]]  # ids → (id, topic)


def fetch_readers(bootstrap: str, managers: Sequence[Manager], cut: Cut, limits: Limits) -> Readers:
    """Ask for all groups, and for the consumers that were heard of in the last day. What cannot be asked is said and does not end the report.

    They are asked after the cut was taken, and their lag is counted to it: a reader that is as far as the cut has none.
    """
    with connected(bootstrap) as connection:
        return ask_readers(asker(connection, limits), lambda ids: _registrations(managers, cut, ids, limits), cut)


def ask_readers(ask: Ask, registered: Registered, cut: Cut) -> Readers:
    """The same by calls that are given.

    Args:
        ask: raises MyQueueError; after UnreachableError nothing is asked any more.
    """
    standings: list[Standing] = []
    not_asked: list[NotAsked] = []

    def answers(kind: str, name: str, path: str, **query: object) -> list[Standing]:
        try:
            return list(_standings(kind, name, ask(path, **query), cut))
        except NotFoundError:
            return []  # it went since it was listed
        except UnreachableError:
            raise
        except MyQueueError as error:
            not_asked.append(NotAsked(f"{kind} {name}", error.message))
            return []

    left_out, at = 0, "groups"
    try:
        with understood():
            for group in (one["group"] for one in ask(routes.GROUPS)["groups"]):
                standings += answers(GROUP, group, routes.GROUP_OFFSETS.format(group=group))
            at = "consumers"
            heard = sorted(ask(routes.HEALTH)["consumers"], key=lambda one: (one["age_seconds"], one["consumer_id"]))
            asked, left_out = heard[:CONSUMERS_ASKED_MAX], max(0, len(heard) - CONSUMERS_ASKED_MAX)
            for consumer_id, topic in registered([one["consumer_id"] for one in asked]) if asked else ():
                standings += answers(CONSUMER, str(consumer_id), routes.LAG.format(topic=topic), consumer_id=consumer_id)
    except MyQueueError as error:
        not_asked.append(NotAsked(at, error.message))
    return Readers(tuple(standings), tuple(not_asked), left_out)


def _standings(kind: str, name: str, body: Mapping[str, Any], cut: Cut) -> Iterator[Standing]:
    """Those in partitions of the cut. A group's answer names the topic of each, a consumer's is of one topic."""
    for one in body["offsets" if kind == GROUP else "partitions"]:
        place = TopicPartition(one["topic"] if kind == GROUP else body["topic"], one["partition"])
        if place in cut.partitions:
            offsets = cut.partitions[place].offsets
            lag = max(0, offsets.end - max(offsets.start, one["offset"] or 0))
            yield Standing(kind, name, place.topic, place.partition, one["offset"], offsets.end, lag)


def asker(connection: Connection, limits: Limits) -> Ask:
    """Calls that are repeated while they may succeed, and are no longer made when the time for all of them is over."""
    deadline = time.monotonic() + ASKING_SECONDS_MAX

    def ask(path: str, **query: object) -> Mapping[str, Any]:
        left = deadline - time.monotonic()
        if left <= 0:
            raise UnreachableError(f"asking took more than {ASKING_SECONDS_MAX:.0f} s")
        return connection.persistently(lambda: connection.call("GET", path, params=query, read_timeout_seconds=limits.connect_seconds),
                                       min(left, limits.connect_seconds))

    return ask


def _registrations(managers: Sequence[Manager], cut: Cut, ids: Sequence[int], limits: Limits) -> list[tuple[int, str]]:
    """Which topics of the cut these consumers are registered for. Raises UnavailableError where no manager's database says it."""
    topics = {one.id.topic_id: name.topic for name, one in cut.partitions.items()}
    refusals = ["the cluster does not say where a manager's database is"]
    for manager in sorted(managers, key=lambda one: one.role != "write"):
        if manager.database is not None:
            try:
                with snapshot_cursor(manager.database, limits) as cursor:
                    rows = rows_of(cursor, REGISTRATIONS, {"ids": list(ids), "topic_ids": sorted(topics)})
                return [(row["consumer_id"], topics[row["topic_id"]]) for row in rows]
            except UnreachableError as error:
                refusals.append(error.message)
    raise UnavailableError(refusals[-1])
