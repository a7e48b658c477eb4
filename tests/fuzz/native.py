"""Requests of the native face, drawn from its OpenAPI document: half of what is wrong there is wrong on purpose."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis import GenerationMode

from myqueue.protocol.batch import BATCH_TYPE, pack
from myqueue.protocol.openapi import document
from myqueue.protocol.operations import OPERATIONS, Operation
from myqueue.protocol.types import Record

from .wire import NATIVE, Sent

_RECORDS = st.lists(st.builds(Record, st.binary(max_size=40), st.none() | st.binary(max_size=8)), min_size=1, max_size=5)
_NOT_SENT = {"User-Agent", "Accept-Encoding", "Accept", "Connection", "Content-Length", "X-Schemathesis-TestCaseId"}


@dataclass(frozen=True, slots=True)
class Pool:
    """What there is in the cluster: half of the requests speak of it, so that they get beyond *unknown topic*."""

    topics: tuple[str, ...]
    doomed: str  # a topic that may be deleted, and is made anew
    producers: tuple[int, ...]
    consumers: tuple[int, ...]
    ports: tuple[int, ...]  # where nobody listens, then those of the cluster's nodes


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
    return {one.name: _of(schema[one.path][one.method], one) for one in OPERATIONS}


def _of(operation: Any, row: Operation) -> st.SearchStrategy[Sent]:
    good = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
    can_be_wrong = row.path_arguments or row.arguments or row.body
    drawn = good | good | operation.as_strategy(generation_mode=GenerationMode.NEGATIVE) if can_be_wrong else good
    return drawn.map(lambda case: _sent(case, row.name))


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
             "PartitionNumber": [0, 1], "Offset": [0, 1, 2]}
    for name, values in known.items():
        schemas[name] = {"anyOf": [{"enum": values}, {"enum": values}, schemas[name]]}
    return told
