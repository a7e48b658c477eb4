"""Requests of the two older faces: every argument under any of its spellings, in the query, a form or JSON, right, odd or wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from hypothesis import strategies as st

from myqueue.service.arguments import ALIASES

from .native import ACCEPTS, Pool
from .tame import NOBODY, PARTITIONS_MAX
from .wire import PARTITION, QUEUE, Sent


@dataclass(frozen=True, slots=True)
class Row:
    """A call of the contract and its arguments, by their first name."""

    face: str
    method: str
    path: str
    arguments: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"


_ADDRESS = ("host", "port", "broker_address")
_PRODUCE = ("topic", "producer_id", "message", "partition", "key")  # the topic first: who is registered depends on it
_CONSUME = ("topic", "consumer_id", "partition", "request_id")
ROWS = (
    Row(QUEUE, "POST", "/topics", ("topic", "partitions", "replication_factor", "config")), Row(QUEUE, "GET", "/topics"),
    Row(QUEUE, "POST", "/producer/register", ("topic",)), Row(QUEUE, "POST", "/consumer/register", ("topic", "start")),
    Row(QUEUE, "POST", "/producer/produce", _PRODUCE),
    Row(QUEUE, "GET", "/consumer/consume", _CONSUME), Row(QUEUE, "POST", "/consumer/consume", _CONSUME),
    Row(QUEUE, "GET", "/size", _CONSUME[:3]), Row(QUEUE, "GET", "/unread_messages", _CONSUME[:3]),
    Row(QUEUE, "POST", "/broker", _ADDRESS), Row(QUEUE, "GET", "/broker"), Row(QUEUE, "DELETE", "/broker/remove", ("broker_id",)),
    Row(QUEUE, "POST", "/partition", ("topic",)), Row(QUEUE, "GET", "/health"),
    Row(PARTITION, "GET", "/"), Row(PARTITION, "GET", "/raft_status"), Row(PARTITION, "POST", "/producers", ("topic",)),
    Row(PARTITION, "POST", "/consumers", ("topic", "start")), Row(PARTITION, "POST", "/partitions", ("producer_id", "topic")),
    Row(PARTITION, "GET", "/partitions", ("topic", "partition")), Row(PARTITION, "POST", "/messages", _PRODUCE),
    Row(PARTITION, "POST", "/logs", _PRODUCE), Row(PARTITION, "GET", "/messages", _CONSUME), Row(PARTITION, "GET", "/logs", _CONSUME),
    Row(PARTITION, "GET", "/brokers"), Row(PARTITION, "POST", "/brokers", _ADDRESS),
)
REGISTRATIONS: dict[str, Callable[[Pool], tuple[int, ...]]] = {"producer_id": lambda pool: pool.producers, "consumer_id": lambda pool: pool.consumers}
# Of another type, out of bounds, or of an alphabet that only looks like digits.
ODD = st.one_of(st.none(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False), st.lists(st.integers(), max_size=2),
                st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
                st.sampled_from(("", " ", "0", "-1", -1, 0, 2**31, 2**63, 2**70, "1e3", "0x1", "٣", "１", "\0", "a\0b", "..",
                                 "'; DROP TABLE topic; --")),
                st.text(max_size=20))
GARBAGE = st.sampled_from((
    b"{", b"[]", b"null", b"1", b'"x"', b"\xff\xfe", b'{"topic": NaN}', b"[" * 100_000, b'{"a":' * 5_000, b'{"topic":"a","topic":"b"}',
    b"\xef\xbb\xbf{}",
    b'{"topic": "\\ud800"}', b"a=%ff", b"topic=%zz", b"&" * 200, b'{"\\u0000": 1}', b" \r\n\t ", b"{}x", b'{"partition": 1e400}', b'{"port": 1'))
TYPES = st.sampled_from((None, "application/json", "application/x-www-form-urlencoded", "text/plain", "application/json; charset=utf-16",
                         "application/json; charset=no-such", "multipart/form-data; boundary=x", "multipart/form-data", "a/b; c"))


def strategies(pool: Pool) -> dict[str, st.SearchStrategy[Sent]]:
    """Requests of each call, by its name."""
    return {row.name: _requests(row, pool) for row in ROWS}


def _good(pool: Pool) -> dict[str, st.SearchStrategy[Any]]:
    topics = st.sampled_from(pool.topics)
    return {
        "topic": topics, "partitions": st.integers(1, PARTITIONS_MAX), "replication_factor": st.integers(1, 3),
        "config": st.just({"retention_ms": 10**9}),
        "start": st.sampled_from(("earliest", "latest")), "producer_id": st.sampled_from(pool.producers), "message": st.text(max_size=40),
        "partition": st.integers(0, 1), "key": st.text(max_size=8), "consumer_id": st.sampled_from(pool.consumers),
        "request_id": st.text("abc", min_size=1, max_size=2), "broker_id": st.just(NOBODY),
        "host": st.sampled_from(("127.0.0.1", "localhost", "::1", "a b", "")), "port": st.sampled_from(pool.ports),
        "broker_address": st.sampled_from(pool.ports).map(lambda port: f"127.0.0.1:{port}"), "doomed": st.just(pool.doomed),
        "new topic": st.from_regex(r"[A-Za-z0-9._-]{1,12}", fullmatch=True),
    }


@st.composite
def _requests(draw: st.DrawFn, row: Row, pool: Pool) -> Sent:
    good = _good(pool)
    in_query: list[tuple[str, Any]] = []
    in_body: list[tuple[str, Any]] = []
    topic = None
    for name in row.arguments:
        value = _value(draw, row, name, good)
        if value is _LEFT_OUT:
            continue
        if name == "topic":
            topic = value
        elif name in REGISTRATIONS and topic in pool.topics and draw(st.booleans()):
            value = REGISTRATIONS[name](pool)[pool.topics.index(topic)]  # whoever is registered for just this topic
        for _ in range(draw(st.sampled_from((1, 1, 1, 1, 2)))):  # the same one twice is the same one
            spelling = draw(st.sampled_from(ALIASES.get(name, (name,))))
            (in_query if draw(st.booleans()) else in_body).append((spelling, value))
    if row.name == "POST /brokers" and not in_query:
        in_query.append(("port", 1))  # without any address it would start a broker
    content_type, body = _body(draw, in_body)
    headers = {} if content_type is None else {"Content-Type": content_type}
    if (accept := draw(st.none() | ACCEPTS)) is not None:
        headers["Accept"] = accept
    query = urlencode([(name, _text(value)) for name, value in in_query])
    return Sent(row.face, row.name, row.method, row.path + (f"?{query}" if query else ""), headers, body, topic if isinstance(topic, str) else None)


_LEFT_OUT = object()


def _value(draw: st.DrawFn, row: Row, name: str, good: dict[str, st.SearchStrategy[Any]]) -> Any:
    """Mostly what is right; never an address beyond this machine or a broker that is there."""
    kind = draw(st.sampled_from(("right",) * 8 + ("odd", "left out")))
    optional = name in ("partition", "key", "request_id", "start", "config", "replication_factor", "partitions")
    if kind == "left out" or (optional and draw(st.booleans())):
        return _LEFT_OUT
    if kind == "odd" and name not in (*_ADDRESS, "broker_id"):
        return draw(ODD)
    if kind == "odd":
        return draw(st.sampled_from((None, True, -1, 0, 1.5, "", "\0", [1], {"a": 1}, 2**70)))
    if name == "topic" and row.path in ("/partition", "/partitions") and row.method == "POST":
        return draw(good["doomed"])
    if name == "topic" and row.name in ("POST /topics", "POST /producer/register", "POST /producers"):
        return draw(good["new topic"] | good["topic"])
    return draw(good[name])


def _body(draw: st.DrawFn, pairs: list[tuple[str, Any]]) -> tuple[str | None, bytes]:
    kind = draw(st.sampled_from(("json",) * 5 + ("form",) * 3 + ("garbage",)))
    if kind == "garbage":
        return draw(TYPES), draw(GARBAGE)
    if not pairs and draw(st.booleans()):
        return None, b""
    if kind == "form":
        return "application/x-www-form-urlencoded", urlencode([(name, _text(value)) for name, value in pairs]).encode()
    return draw(st.sampled_from((None, "application/json", "text/plain"))), json.dumps(dict(pairs)).encode()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
