"""The error tree: every class is usable, tellable and survives the wire."""

from __future__ import annotations

import json

import pytest

from myqueue import errors
from myqueue.errors import BY_CODE, NOT_DONE, UNKNOWN, DeliveryError, MyQueueError
from myqueue.protocol import wire

ALL = sorted(BY_CODE.values(), key=lambda cls: cls.__name__)


def test_every_class_has_a_code_of_its_own() -> None:
    classes = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, MyQueueError)]
    assert len(classes) == len(BY_CODE)
    assert set(classes) == set(BY_CODE.values())


@pytest.mark.parametrize("cls", ALL)
def test_the_docstring_is_the_default_message(cls: type[MyQueueError]) -> None:
    error = cls()
    assert (cls.__doc__ or "").strip().split("\n")[0] == error.message == str(error)
    assert error.message


@pytest.mark.parametrize("cls", ALL)
def test_error_to_envelope_to_error_is_the_same_error(cls: type[MyQueueError]) -> None:
    """Through real JSON text, with details of every JSON kind."""
    error = cls("what happened: ä")
    error.details = {"leader": 3, "topics": ["a", "b"], "seconds": 0.5, "nothing": False, "nested": {"x": 1}}
    envelope = json.loads(json.dumps(wire.error_to_json(error)))
    again = wire.error_from_json(envelope, cls.status)
    assert cls is type(again)
    assert repr(error) == repr(again)
    assert (cls.code, cls.retriable, cls.outcome) == tuple(envelope["error"][name] for name in ("code", "retriable", "outcome"))


@pytest.mark.parametrize("cls", ALL)
def test_who_broke_the_rule_fits_the_status(cls: type[MyQueueError]) -> None:
    assert cls.outcome in (NOT_DONE, UNKNOWN)
    assert 400 <= cls.status < 600
    if cls.status == 503:
        assert cls.retriable, "503 says: try again"
    if cls.status < 500:
        assert cls.outcome == NOT_DONE, "a caller's mistake leaves nothing behind"


def test_details_read_as_attributes_and_none_is_left_out() -> None:
    error = errors.NotLeaderError("not here", leader=3, topic=None)
    assert 3 == error.leader
    assert {"leader": 3} == error.details
    with pytest.raises(AttributeError):
        _ = error.topic


@pytest.mark.parametrize(("body", "status", "cls"), [
    ({"error": {"code": "of_a_later_version", "message": "m"}}, 409, errors.BadRequestError),
    ({"error": {"code": "of_a_later_version", "message": "m"}}, 503, errors.UnavailableError),
    ({"error": {"code": "of_a_later_version"}}, 500, errors.InternalError),
    ({"error": "text"}, 502, errors.OutcomeUnknownError),
    ("<html>", 504, errors.OutcomeUnknownError),
    (None, 429, errors.UnavailableError),
    (None, 404, errors.BadRequestError),
    (["list"], 500, errors.InternalError),
])
def test_what_is_no_envelope_of_ours_becomes_an_error_that_fits_the_status(body, status: int, cls: type[MyQueueError]) -> None:
    assert cls is type(wire.error_from_json(body, status))


def test_a_code_that_is_no_text_or_details_that_are_no_object_do_no_harm() -> None:
    assert isinstance(wire.error_from_json({"error": {"code": ["x"], "details": [1]}}, 400), errors.BadRequestError)


def test_undelivered_messages_travel_with_the_error() -> None:
    assert (1, 2) == DeliveryError("lost", [1, 2]).undelivered
    assert () == DeliveryError().undelivered
