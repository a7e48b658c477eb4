"""Requests of the native face, drawn from its OpenAPI document: half of what is wrong there is wrong on purpose."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis import GenerationMode

from myqueue.protocol import routes
from myqueue.protocol.batch import BATCH_TYPE, ENTRIES_TYPE, pack
from myqueue.protocol.openapi import document
from myqueue.protocol.operations import EVENTS_TYPE, JSON_TYPE, OPERATIONS, Operation
from myqueue.protocol.types import Record

from .roster import GENERATION, MEMBER
from .wire import NATIVE, Sent

_RECORDS = st.lists(st.builds(Record, st.binary(max_size=40), st.none() | st.binary(max_size=8)), min_size=1, max_size=5)
# What a client may say that it takes, sensible or not.
ACCEPTS = st.sampled_from((EVENTS_TYPE, "Text/Event-Stream;q=0.5, */*", ENTRIES_TYPE, ENTRIES_TYPE.upper(), JSON_TYPE, "*/*", "text/html", "*/*;q=0",
                           f"{ENTRIES_TYPE}, {EVENTS_TYPE}", "", ",", ";q=", "/", "text", "\xe9", "a/b;" * 800, "application/openmetrics-text"))
LAST_IDS = st.sampled_from(("-1", "0", "1", "2", " 1 ", "-2", "", "x", "1e3", "1.0", "0x1", "\xb2", "1_0", "+1", "-0", "007", "9" * 19, "9" * 40,
                            "9" * 5_000))
_NOT_SENT = {"User-Agent", "Accept-Encoding", "Accept", "Connection", "Content-Length", "X-Schemathesis-TestCaseId"}


@dataclass(frozen=True, slots=True)
class Pool:
    """What there is in the cluster: half of the requests speak of it, so that they get beyond *unknown topic*."""

    topics: tuple[str, ...]
    doomed: str  # a topic that may be deleted, and is made anew
    producers: tuple[int, ...]
    consumers: tuple[int, ...]
    ports: tuple[int, ...]  # where nobody listens, then those of the cluster's nodes
    groups: tuple[str, ...] = ()  # whose member stays
    leaving: str = "leaving"  # a group whose member may leave
    idle: str = "idle"  # a group without members
    keys: tuple[str, ...] = ("k",)
    times: tuple[int, ...] = (0,)
    cursors: tuple[str, ...] = ("",)


@st.composite
def _batches(draw: st.DrawFn) -> bytes:
    """Binary batches, good ones and ones with a byte changed, cut off, or more behind."""
    good = pack(draw(_RECORDS))
    kind = draw(st.sampled_from(("good", "good", "flipped", "cut", "more", "rubbish")))
    at = draw(st.integers(0, len(good) - 1))
    changed = {"good": good, "flipped": good[:at] + bytes([good[at] ^ (1 << draw(st.integers(0, 7)))]) + good[at + 1:], "cut": good[:at],
               "more": good + draw(st.binary(max_size=8)), "rubbish": draw(st.binary(max_size=60))}
    return changed[kind]


schemathesis.openapi.media_type(BATCH_TYPE, _batches())


def strategies(pool: Pool) -> dict[str, st.SearchStrategy[Sent]]:
    """Requests of each operation, by its name."""
    schema = schemathesis.openapi.from_dict(_known(document(), pool))
    return {one.name: _of(schema[one.path][one.method], one, pool) for one in OPERATIONS}


def _of(operation: Any, row: Operation, pool: Pool) -> st.SearchStrategy[Sent]:
    good = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
    can_be_wrong = row.path_arguments or row.arguments or row.body
    drawn = good | good | operation.as_strategy(generation_mode=GenerationMode.NEGATIVE) if can_be_wrong else good
    if known := _names(row, pool):
        named = st.builds(_naming, drawn, st.fixed_dictionaries(known), st.fixed_dictionaries(_bodies(pool).get(row.name, {})))
        drawn = drawn | named | named | named  # half of all: the first has three branches
    made = drawn.map(lambda case: _sent(case, row.name))
    return made | st.builds(_with, made, st.just("Accept"), ACCEPTS)


def _names(row: Operation, pool: Pool) -> dict[str, st.SearchStrategy[Any]]:
    """Arguments in the path, or needed in the query, that name what is there."""
    known = {"topic": st.sampled_from(pool.topics), "partition": st.sampled_from((0, 1)), "consumer_id": st.sampled_from(pool.consumers),
             "group": st.sampled_from((*pool.groups, pool.leaving, pool.idle)), "member_id": st.just(MEMBER)}
    if row.name == "search_topic":
        known |= {"key": st.sampled_from(pool.keys)}
    names = {one.name for one in (*row.path_arguments, *row.arguments) if one.place == "path" or one.is_needed or one.name == "key"}
    return {name: strategy for name, strategy in known.items() if name in names}


def _bodies(pool: Pool) -> dict[str, dict[str, st.SearchStrategy[Any]]]:
    """Fields, by operation, that speak of the partitions that groups read."""
    place = st.fixed_dictionaries({"topic": st.sampled_from(pool.topics), "partition": st.sampled_from((0, 1))})
    standing = st.fixed_dictionaries({"topic": st.sampled_from(pool.topics), "partition": st.sampled_from((0, 1)), "offset": st.integers(0, 3)})
    places = st.lists(place, min_size=1, max_size=3)
    offsets = st.lists(standing, min_size=1, max_size=3, unique_by=lambda one: (one["topic"], one["partition"]))
    return {"join_group": {"topics": st.lists(st.sampled_from(pool.topics), min_size=1, max_size=3)}, "member_heartbeat": {"released": places},
            "claim_partitions": {"generation": st.just(GENERATION), "partitions": places},
            "commit_offsets": {"generation": st.just(GENERATION), "offsets": offsets}, "set_group_offsets": {"offsets": offsets}}


def _naming(case: Any, known: dict[str, Any], fields: dict[str, Any]) -> Any:
    """The drawn request, about what is there; the rest of it stays as it was drawn."""
    in_path = {name: value for name, value in known.items() if f"{{{name}}}" in case.operation.path}
    case.path_parameters = {**(case.path_parameters or {}), **in_path}
    case.query = {**(case.query or {}), **{name: value for name, value in known.items() if name not in in_path}}
    if fields:
        case.body, case.media_type = {**(case.body if isinstance(case.body, dict) else {}), **fields}, JSON_TYPE
    return case


def streams(pool: Pool) -> st.SearchStrategy[Sent]:
    """Reads that ask for Server-Sent Events, most of them such as get them."""
    topics = st.sampled_from((*pool.topics, *pool.topics, pool.doomed, "absent"))
    queries = st.sampled_from(("", "", "?offset=earliest", "?offset=latest", "?offset=0", "?offset=1", "?offset=99", "?offset=x", "?until_offset=1",
                               "?max_records=0", "?topic_id=1", *(f"?timestamp={time}" for time in pool.times)))
    made = st.builds(lambda topic, partition, query: Sent(NATIVE, "read_records", "GET", routes.RECORDS.format(
        topic=topic, partition=partition) + query, {"Accept": EVENTS_TYPE}), topics, st.sampled_from((0, 1)), queries)
    return made | st.builds(_with, made, st.just("Last-Event-ID"), LAST_IDS)


def _with(sent: Sent, name: str, value: str) -> Sent:
    return sent.with_header(name, value)


def _sent(case: Any, name: str) -> Sent:
    arguments = case.as_transport_kwargs(base_url="http://127.0.0.1")
    known = {key: arguments[key] for key in ("headers", "params", "json", "data", "files", "cookies") if key in arguments}
    made = requests.Request(arguments["method"], arguments["url"], **known).prepare()
    headers = {key: value if isinstance(value, str) else value.decode("latin-1") for key, value in made.headers.items() if key not in _NOT_SENT}
    body = made.body or b""
    return Sent(NATIVE, name, made.method or "GET", made.path_url, headers, body.encode() if isinstance(body, str) else body)


def _known(told: dict[str, Any], pool: Pool) -> dict[str, Any]:
    """The document, with what is in the cluster as a choice beside what might be."""
    told = copy.deepcopy(told)
    schemas = told["components"]["schemas"]
    known = {"TopicName": [*pool.topics, pool.doomed], "ProducerId": list(pool.producers), "ConsumerId": list(pool.consumers),
             "PartitionNumber": [0, 1], "Offset": [0, 1, 2], "GroupName": [*pool.groups, pool.leaving, pool.idle], "MemberId": [MEMBER]}
    for name, values in known.items():
        schemas[name] = _or_known(schemas[name], values)
    for path, method in ((routes.MEMBER_CLAIMS, "post"), (routes.MEMBER_OFFSETS, "put")):
        fields = told["paths"][path][method]["requestBody"]["content"][JSON_TYPE]["schema"]["properties"]
        fields["generation"] = _or_known(fields["generation"], [GENERATION])
    in_query = {"key": list(pool.keys), "from_timestamp": list(pool.times), "to_timestamp": list(pool.times), "timestamp": list(pool.times),
                "cursor": list(pool.cursors)}
    for one in (*told["paths"][routes.SEARCH]["get"]["parameters"], *told["paths"][routes.RECORDS]["get"]["parameters"]):
        if one["name"] in in_query:
            one["schema"] = _or_known(one["schema"], in_query[one["name"]])
    return told


def _or_known(schema: dict[str, Any], values: list[Any]) -> dict[str, Any]:
    return {"anyOf": [{"enum": values}, {"enum": values}, schema]}
