"""Every call of the contract's table, by every way to ask it and with everything that may be wrong with it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.conformance.conftest import ENTRANCES, World, new_name
from tests.conformance.contract import ALIASES, BROKER, NUMBERS, PARTITION_FACE, QUEUE_FACE, WRONG, Call
from tests.conformance.face import Face

Arguments = Mapping[str, Any]
UNKNOWN_ID = 999_999_999


def as_text(arguments: Arguments) -> dict[str, str]:
    """What can stand in a query or a form."""
    return {name: str(value) for name, value in arguments.items() if not isinstance(value, dict)}


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def halves(arguments: Arguments) -> tuple[dict[str, Any], dict[str, Any]]:
    items = list(arguments.items())
    return dict(items[::2]), dict(items[1::2])


# How all arguments of a call may be given, whatever its method.
WAYS: Mapping[str, Callable[[Arguments], dict[str, Any]]] = {
    "query": lambda all_: {"params": as_text(all_)},
    "form": lambda all_: {"data": as_text(all_)},
    "multipart form": lambda all_: {"files": {name: (None, value) for name, value in as_text(all_).items()}},
    "json": lambda all_: {"json": dict(all_)},
    "json without a type": lambda all_: {"data": as_json(all_)},
    "json as text": lambda all_: {"data": as_json(all_), "headers": {"Content-Type": "text/plain"}},
    "json as a form": lambda all_: {"data": as_json(all_), "headers": {"Content-Type": "application/x-www-form-urlencoded"}},
    "json in another charset": lambda all_: {"data": json.dumps(all_).encode("utf-16"), "headers": {"Content-Type": "text/json; charset=UTF-16"}},
    "query and json": lambda all_: {"params": as_text(halves(all_)[0]), "json": halves(all_)[1]},
    "query and form": lambda all_: {"params": as_text(halves(all_)[1]), "data": as_text(halves(all_)[0])},
    "twice the same": lambda all_: {"params": as_text(all_), "json": dict(all_)},
}

ALL = [*itertools.product(ENTRANCES, QUEUE_FACE + PARTITION_FACE), *(("broker", call) for call in BROKER)]
CASES = [case for case in ALL if case[1].arguments]
ARGUMENTS = [(*case, argument) for case in CASES for argument in case[1].arguments]


def name_of(value: object) -> str:
    return str(value).replace(" ", "_")


@pytest.mark.one_in(8)
@pytest.mark.parametrize(("server", "call"), CASES, ids=name_of)
@pytest.mark.parametrize("way", WAYS)
def test_all_arguments_may_be_given_by_every_way(world: World, at: Face, call: Call, way: str) -> None:
    at.succeeds(call, **WAYS[way](world.arguments(call)))


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("server", "call"), ALL, ids=name_of)
def test_what_is_optional_may_be_left_out(world: World, at: Face, call: Call) -> None:
    arguments = world.arguments(call)
    needed = (*call.needs, "host") if "host" in call.takes and arguments["host"] != "127.0.0.1" else call.needs  # left out it is the caller's
    at.succeeds(call, {name: arguments[name] for name in needed})


@pytest.mark.one_in(11)
@pytest.mark.parametrize(("server", "call", "argument"), ARGUMENTS, ids=name_of)
def test_each_argument_may_stand_apart_from_the_others(world: World, at: Face, call: Call, argument: str) -> None:
    for alone, others in (("params", "json"), ("json", "params"), ("params", "data"), ("data", "params")):
        arguments = world.arguments(call)
        one = {argument: arguments.pop(argument)}
        if isinstance(one[argument], dict) and alone != "json":
            continue
        given = {alone: one, others: arguments}
        at.succeeds(call, **{where: what if where == "json" else as_text(what) for where, what in given.items()})


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("server", "call"), [case for case in CASES if set(case[1].arguments) & set(NUMBERS)], ids=name_of)
def test_a_number_may_be_its_decimal_string(world: World, at: Face, call: Call) -> None:
    arguments = world.arguments(call)
    at.succeeds(call, {name: str(value) if name in NUMBERS else value for name, value in arguments.items()})


@pytest.mark.one_in(3)
@pytest.mark.parametrize("way", WAYS)
def test_a_broker_that_is_removed_may_be_named_by_every_way(face: Face, way: str) -> None:
    """One that is not there, so that nothing is removed."""
    face.refused("DELETE", "/broker/remove", says=str(UNKNOWN_ID), **WAYS[way]({"broker_id": UNKNOWN_ID, "x": "y"}))


def test_what_the_id_of_a_broker_may_not_be(face: Face) -> None:
    for wrong in WRONG["broker_id"]:
        face.refused("DELETE", "/broker/remove", {"broker_id": wrong}, says="broker_id")


# --- aliases ---

ALIASED = [case for case in ARGUMENTS if case[2] in ALIASES]


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("server", "call", "argument"), ALIASED, ids=name_of)
def test_each_alias_is_the_argument(world: World, at: Face, call: Call, argument: str) -> None:
    for alias in ALIASES[argument]:
        arguments = world.arguments(call)
        at.succeeds(call, {**arguments, alias: arguments.pop(argument)})


@pytest.mark.one_in(13)
@pytest.mark.parametrize(("server", "call", "argument"), ALIASED, ids=name_of)
def test_two_aliases_are_one_argument(world: World, at: Face, call: Call, argument: str) -> None:
    """With the same value that value, in the body or in query and body; with different values a mistake, and nothing is done."""
    pairs = list(itertools.combinations(ALIASES[argument], 2))
    for number, (one, other) in enumerate(pairs):
        arguments = world.arguments(call)
        value = arguments.pop(argument)
        if number % 2:
            at.succeeds(call, {**arguments, one: value, other: value})
        else:
            at.succeeds(call, {**arguments, other: value}, params={one: value})
    before = world.stored() if call.stores else 0
    for one, other in pairs:
        arguments = world.arguments(call)
        value = arguments.pop(argument)
        different = {"topic": new_name(), "message": "n", "partition": 1, "partitions": 3, "host": "localhost", "port": 1}[argument]
        at.fails(call, {**arguments, one: value, other: different}, says="twice with different values")
        at.fails(call, {**arguments, other: different}, params={one: value}, says="twice with different values")
    assert not call.stores or before == world.stored()


@pytest.mark.one_in(7)
@pytest.mark.parametrize(("server", "call", "argument"), [case for case in ARGUMENTS if case[2] != "config"], ids=name_of)
def test_one_argument_with_two_values_is_a_mistake(world: World, at: Face, call: Call, argument: str) -> None:
    """In a query twice, in a form twice, in a JSON body twice, and in two of them."""
    arguments = world.arguments(call)
    value = arguments.pop(argument)
    pairs, texts = [(argument, value), (argument, f"{value}9")], as_text(arguments)
    twice = b'{"%s": %s, "%s": %s}' % (argument.encode(), as_json(value), argument.encode(), as_json(f"{value}9"))
    for given in ({"params": [*texts.items(), *pairs]}, {"data": [*texts.items(), *pairs]}, {"params": texts, "data": twice},
                  {"params": {**texts, argument: value}, "json": {argument: f"{value}9"}}):
        at.fails(call, says="twice with different values", **given)


# --- mistakes ---


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("server", "call"), [case for case in CASES if case[1].needs and case[1].path != "/brokers"], ids=name_of)
def test_what_is_missing_is_named(world: World, at: Face, call: Call) -> None:
    """An argument that is null is not given. (Of ``POST /brokers`` nothing is missing: without an address a broker is started.)"""
    for argument in call.needs:
        arguments = world.arguments(call)
        at.fails(call, {**arguments, argument: None}, says=argument)
        at.fails(call, params=as_text({name: value for name, value in arguments.items() if name != argument}), says=argument)


@pytest.mark.one_in(16)
@pytest.mark.parametrize(("server", "call", "argument"), ARGUMENTS, ids=name_of)
def test_what_an_argument_may_not_be(world: World, at: Face, call: Call, argument: str) -> None:
    """A boolean where a number is due, and all else; in the query too where it can be written there."""
    before = world.stored() if call.stores else 0
    arguments = world.arguments(call)
    for wrong in WRONG[argument]:
        at.fails(call, {**arguments, argument: wrong})
        if isinstance(wrong, str) and "\n" not in wrong:
            rest = {name: value for name, value in arguments.items() if name != argument}
            at.fails(call, rest, params={argument: wrong})
    assert not call.stores or before == world.stored()


@pytest.mark.one_in(13)
@pytest.mark.parametrize(("server", "call"), CASES, ids=name_of)
@pytest.mark.parametrize("body", [b"[]", b'"x"', b"1", b"null", b"{", b"{]", b"\xff\xfe", b'{"a": NaN}', b"[" * 50_000, b"{'a': 1}", b"\x00"])
def test_a_body_that_is_no_json_object_is_a_mistake(world: World, at: Face, call: Call, body: bytes) -> None:
    at.fails(call, params=as_text(world.arguments(call)), data=body, headers={"Content-Type": "application/json"})


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("server", "call"), [case for case in CASES if "topic" in case[1].needs and not case[1].makes], ids=name_of)
def test_what_is_not_there_is_named(world: World, at: Face, call: Call) -> None:
    """A topic, a partition with how many there are, an id that nobody has, one of another topic."""
    before = world.stored()
    arguments = world.arguments(call)
    if call.path not in ("/producer/register", "/producers"):
        missing = new_name()
        at.fails(call, {**arguments, "topic": missing}, says=missing)
    if "partition" in call.arguments:
        for number in (2, 7, 2**31 - 1):
            at.fails(call, {**arguments, "partition": number}, says="2 partitions")
    for kind, foreign in (("producer_id", world.growing_producer_id), ("consumer_id", world.growing_consumer_id)):
        if kind in call.arguments and at is world.face:
            for number in (UNKNOWN_ID, world.producer_id if call.grows else foreign):
                at.fails(call, {**arguments, kind: number}, says=str(number))
    assert before + call.reads == world.stored()
