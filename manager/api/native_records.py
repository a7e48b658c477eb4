"""The native face's records of a whole topic: produce to it, search it, and how far a consumer is."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, jsonify, request

from manager.api.bodies import query_of, rule
from manager.batches import Addressed, Batches
from manager.records import Records
from manager.search import Search, SearchQuery
from myqueue.errors import BadRequestError, UnsupportedMediaTypeError
from myqueue.protocol import routes, wire
from myqueue.protocol.limits import INT32_MAX
from myqueue.protocol.names import check_topic_name, parse_integer
from myqueue.service.arguments import json_object

JSON_TYPE = "application/json"
RECORDS_DEFAULT, RECORDS_MAX = 100, 1_000  # in a page of a search


def add_views(blueprint: Blueprint, batches: Batches, records: Records, search: Search) -> None:
    """Give the native blueprint these paths."""

    @blueprint.post(rule(routes.TOPIC_RECORDS))
    def produce(topic: str) -> Response:
        name = check_topic_name(topic)
        outcomes = batches.produce(name, _batch())
        return jsonify({"topic": name, "record_count": sum(len(outcome.places) for outcome in outcomes),
                        "partitions": [outcome.to_json() for outcome in outcomes]})

    @blueprint.get(rule(routes.LAG))
    def lag(topic: str) -> Response:
        name, [consumer_id] = check_topic_name(topic), query_of("consumer_id")
        if consumer_id is None:
            raise BadRequestError("consumer_id is needed: as its registration told it", argument="consumer_id")
        found = records.positions(consumer_id=parse_integer(consumer_id, name="consumer_id", minimum=1), topic_name=name)
        return jsonify({"topic": name, "consumer_id": int(consumer_id), "lag": sum(one.lag for one in found),
                        "partitions": [one.to_json() for one in found]})

    @blueprint.get(rule(routes.SEARCH))
    def find(topic: str) -> Response:
        name = check_topic_name(topic)
        key, key_base64, since, before, most, cursor = query_of("key", "key_base64", "from_timestamp", "to_timestamp", "max_records", "cursor")
        query = SearchQuery(wire.value_from_json({"key": key, "key_base64": key_base64}, "key"), _microseconds(since, "from_timestamp"),
                            _microseconds(before, "to_timestamp"))
        if query == SearchQuery():
            raise BadRequestError("a search needs key or key_base64, or from_timestamp or to_timestamp, or both a key and times")
        records_max = RECORDS_DEFAULT if most is None else parse_integer(most, name="max_records", minimum=1, maximum=RECORDS_MAX)
        page = search.page(name, query, cursor, records_max=records_max)
        return jsonify({"topic": name, "records": page.records, "cut": list(page.ends), "cursor": page.cursor})


def _microseconds(text: str | None, name: str) -> int | None:
    """A time since 1970. Raises BadRequestError."""
    return None if text is None else parse_integer(text, name=name)


def _batch() -> list[Addressed]:
    """The records of the request. Raises BadRequestError, TooLargeError, UnsupportedMediaTypeError."""
    sequence = [name for name in (routes.PRODUCER_ID, routes.PRODUCER_EPOCH, routes.PRODUCER_SEQ) if name in request.headers]
    if sequence:
        raise BadRequestError(f"{', '.join(sequence)}: sequences are counted by partition, so such records go to one: "
                              f"POST {routes.RECORDS}", headers=sequence)
    kind = (request.mimetype or JSON_TYPE).lower()
    if kind != JSON_TYPE:
        raise UnsupportedMediaTypeError(f"{kind} is not read here; a good type is {JSON_TYPE}", supported=[JSON_TYPE])
    items = wire.record_items(json_object(request.get_data(cache=False), request.mimetype_params.get("charset", "utf-8")))
    numbers = [_partition(item) for item in items]
    records = wire.records_from_json({name: value for name, value in item.items() if name != "partition"} if isinstance(item, dict) else item
                                     for item in items)
    return [Addressed(record, number) for record, number in zip(records, numbers, strict=True)]


def _partition(item: Any) -> int | None:
    if not isinstance(item, dict) or item.get("partition") is None:
        return None
    return parse_integer(item["partition"], name="partition", maximum=INT32_MAX)
