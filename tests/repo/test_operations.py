"""The table of operations is what the apps serve, and the document made from it is OpenAPI 3.1."""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from flask import Flask
from schemathesis.specs.openapi.definitions import OPENAPI_31

from myqueue.protocol import routes
from myqueue.protocol.openapi import document
from myqueue.protocol.operations import BROKER, EVERY_NODE, JSON_TYPE, MANAGER, OPERATIONS, Operation
from myqueue.service.app import build_app
from myqueue.service.lifecycle import Lifecycle

ROOT = Path(__file__).resolve().parents[2]
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def app_of(service: str) -> Flask:
    """Every face of a service, whose views are never called: they are made of nothing."""
    faces = []
    for path in sorted((ROOT / service / "api").glob("*.py")):
        module = importlib.import_module(f"{service}.api.{path.stem}")
        if hasattr(module, "make_blueprint"):
            faces.append(module.make_blueprint(**dict.fromkeys(inspect.signature(module.make_blueprint).parameters)))
    assert faces
    return build_app(f"{service}-1", faces, lifecycle=Lifecycle(), ready=dict)


def rules_of(app: Flask) -> set[tuple[str, str]]:
    """Method and path of every rule of the native face, in our spelling."""
    return {(method, rule.rule.replace("<", "{").replace(">", "}")) for rule in app.url_map.iter_rules()
            for method in (rule.methods or set()) - {"HEAD", "OPTIONS"} if rule.rule.startswith("/v1/") or rule.rule in routes.OF_EVERY_PROCESS}


@pytest.mark.parametrize("service", [MANAGER, BROKER])
def test_the_table_has_every_rule_of_the_app_and_no_other(service: str) -> None:
    described = {(one.method, one.path) for one in OPERATIONS if one.served_by in (service, EVERY_NODE)}
    served = rules_of(app_of(service))
    assert set() == served - described, "served and not in myqueue/protocol/operations.py"
    assert set() == described - served, "in myqueue/protocol/operations.py and not served"


def test_each_operation_stands_there_once() -> None:
    assert len(OPERATIONS) == len({one.name for one in OPERATIONS}) == len({(one.method, one.path) for one in OPERATIONS})


def test_every_path_is_a_constant_of_the_routes() -> None:
    known = {value for name, value in vars(routes).items() if isinstance(value, str) and name.isupper()}
    assert {one.path for one in OPERATIONS} <= known


def test_the_document_is_openapi_3_1() -> None:
    made = json.loads(json.dumps(document()))
    assert [] == [f"{error.instance_path}: {error.message}" for error in jsonschema_rs.validator_for(OPENAPI_31).iter_errors(made)]


def test_the_check_finds_what_is_wrong() -> None:
    """So that the test above can fail."""
    made = json.loads(json.dumps(document()))
    del made["paths"][routes.TOPICS]["get"]["responses"]["200"]["description"]
    assert not jsonschema_rs.validator_for(OPENAPI_31).is_valid(made)


def test_every_schema_in_it_is_a_schema() -> None:
    found = list(schemas_in(document()))
    assert len(found) > 100
    for schema in found:
        jsonschema_rs.meta.validate({"$schema": DRAFT, **schema})


def test_every_reference_leads_somewhere() -> None:
    made = document()
    for pointer in references_in(made):
        at = made
        for part in pointer.removeprefix("#/").split("/"):
            at = at[part]


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.body is not None], ids=lambda one: one.name)
def test_an_example_is_what_its_schema_says(operation: Operation) -> None:
    assert operation.body is not None
    validator(operation.body.content[JSON_TYPE]).validate(operation.body.example)


def validator(schema: dict[str, Any]) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator({**schema, "components": document()["components"]})


def schemas_in(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if isinstance(value.get("schema"), dict):
            yield value["schema"]
        yield from value["schemas"].values() if isinstance(value.get("schemas"), dict) else ()
        for inner in value.values():
            yield from schemas_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from schemas_in(inner)


def references_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        for inner in value.values():
            yield from references_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references_in(inner)
