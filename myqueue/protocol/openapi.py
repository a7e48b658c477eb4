"""PURE. The OpenAPI 3.1 document of the native face, and the command line that shows an operation."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any
from urllib.parse import quote

from ..errors import MyQueueError
from .operations import BROKER, BY_A_MANAGER, HEADERS, JSON_TYPE, MANAGER, ON_EVERY_ANSWER, OPERATIONS, Answer, Argument, Body, Operation
from .schemas import COMPONENTS, Schema, error_of

VERSION = "1"  # of the face: it is in its paths
ADDRESS = "localhost:9092"  # of the balancer, in examples
DESCRIPTION = ("Topics, records, registrations and the cluster, in JSON. Whatever fails is told in one envelope, whose `outcome` says whether "
               "anything was done. All of it is served by the balancer, which sends what concerns a partition straight to the broker that leads it "
               "and all else to the managers; managers and brokers answer directly too. Where the cluster asks for a token, send it as "
               "`Authorization: Bearer …`.")
RETRY_LATER = (429, 503)


def document(operations: Sequence[Operation] = OPERATIONS, *, title: str = "MyQueue") -> dict[str, Any]:
    """The whole document, the same at every node."""
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": VERSION, "description": DESCRIPTION, "license": {"name": "MIT", "identifier": "MIT"}},
        "servers": [{"url": "/", "description": "the node that answered this; usually the balancer"}],
        "tags": [{"name": name} for name in dict.fromkeys(one.group for one in operations)],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {"schemas": dict(COMPONENTS), "headers": {name: {"schema": schema} for name, schema in HEADERS.items()},
                       "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "MYQUEUE_TOKEN, where the nodes have one"}}},
    }


def curl(operation: Operation, address: str = ADDRESS) -> str:
    """A command line that does the operation with its examples."""
    path = operation.path.format(**{one.name: quote(str(one.example), safe="") for one in operation.path_arguments})
    shown = [one for one in operation.arguments if one.place == "query" and one.example is not None]
    query = "&".join(f"{one.name}={quote(str(one.example), safe='')}" for one in shown)
    words = ["curl", "-s"]
    if operation.method != "GET":
        words += ["-X", operation.method]
    words += [f"{address}{path}{'?' if query else ''}{query}"]
    if operation.body is not None:
        words += ["-H", f"Content-Type: {JSON_TYPE}", "-d", json.dumps(operation.body.example)]
    return shlex.join(words)


def _operation(one: Operation) -> dict[str, Any]:
    served = {BROKER: "The partition's leader answers.", MANAGER: "A manager answers."}.get(one.served_by, "Every process answers for itself.")
    made: dict[str, Any] = {"operationId": one.name, "tags": [one.group], "summary": one.summary, "description": f"{one.help} {served}".strip()}
    arguments = [*one.path_arguments, *one.arguments]
    if arguments:
        made["parameters"] = [_argument(argument) for argument in arguments]
    if one.body is not None:
        made["requestBody"] = {"required": one.body.is_needed, "content": _content(one.body)}
    answers = {str(answer.status): _answer(one, answer) for answer in (one.answer, *one.other_answers)}
    made["responses"] = {**answers, **_errors(one.all_errors)}
    return made


def _argument(one: Argument) -> dict[str, Any]:
    return {"name": one.name, "in": one.place, "required": one.is_needed, "schema": one.schema, **({"description": one.help} if one.help else {}),
            **({} if one.example is None else {"example": [one.example] if one.schema.get("type") == "array" else one.example})}


def _content(told: Body | Answer) -> dict[str, Any]:
    content = {kind: {"schema": schema} for kind, schema in told.content.items()}
    if isinstance(told, Body) and told.example is not None:
        next(iter(content.values()))["example"] = told.example
    return content


def _answer(one: Operation, answer: Answer) -> dict[str, Any]:
    names = (*ON_EVERY_ANSWER, *(BY_A_MANAGER if one.served_by == MANAGER else ()), *answer.headers)
    return {"description": answer.help, "headers": _headers(names), **({"content": _content(answer)} if answer.content else {})}


def _errors(errors: Iterable[type[MyQueueError]]) -> dict[str, Any]:
    """One response a status; its description has a line for each code."""
    found: dict[str, Any] = {}
    for status, group in groupby(errors, key=lambda error: error.status):
        members = tuple(group)
        found[str(status)] = {"description": "\n".join(f"`{error.code}`: {error().message}" for error in members),
                              "headers": _headers((*ON_EVERY_ANSWER, *(("Retry-After",) if status in RETRY_LATER else ()))),
                              "content": {JSON_TYPE: {"schema": error_of(members)}}}
    return found


def _headers(names: Iterable[str]) -> Mapping[str, Schema]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
