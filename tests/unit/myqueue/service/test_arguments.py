from __future__ import annotations

import json

import pytest
from flask import Flask, Request
from werkzeug.test import EnvironBuilder

from myqueue.errors import BadRequestError, InvalidNameError, OutcomeUnknownError, TooLargeError, TopicExistsError, UnavailableError
from myqueue.service.arguments import Arguments, arguments_of, partition_failure, queue_failure

JSON, FORM, TEXT = "application/json", "application/x-www-form-urlencoded", "text/plain"


def ask(query: str = "", body: bytes = b"", content_type: str | None = None, method: str = "GET") -> Arguments:
    builder = EnvironBuilder(path="/x", query_string=query, method=method, data=body or None, content_type=content_type)
    with Flask("x").request_context(builder.get_environ()) as context:
        request: Request = context.request
        return arguments_of(request)


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PUT"])
@pytest.mark.parametrize(("query", "body", "content_type"), [
    ("topic=x&partition_id=0", b"", None),
    ("", b'{"topic":"x","partition_id":0}', JSON),
    ("", b'{"topic":"x","partition_id":"0"}', TEXT),
    ("", b' {"topic":"x","partition_id":0} ', FORM),
    ("", b"topic=x&partition_id=0\n", FORM),
    ("topic=x", b'{"partition_number":0}', "application/json; charset=UTF-8"),
    ("topic=x", b'{"topic":"x","partition":0}', None),
    ("topic_name=x", b"partition_index=0", FORM),
    ("", '{"topic":"x","partition_id":0}'.encode("utf-16"), "application/json; charset=utf-16"),
])
def test_arguments_come_from_everywhere_on_every_method(method, query, body, content_type):
    found = ask(query, body, content_type, method)
    assert (found.topic(), found.integer("partition")) == ("x", 0)


def test_all_of_them_by_their_one_names_as_they_came():
    found = ask("topic_name=x&partition_id=0", b'{"raft_partners":["a"],"replica_id":3,"nothing":null}', JSON, "POST")
    assert {"topic": "x", "partition": "0", "raft_partners": ["a"], "replica_id": 3} == found.as_json()


def test_multipart_form():
    body = b'--b\r\nContent-Disposition: form-data; name="topic"\r\n\r\nx\r\n--b--\r\n'
    assert ask("", body, "multipart/form-data; boundary=b", "POST").topic() == "x"


@pytest.mark.parametrize(("query", "body", "content_type"), [
    ("topic=x&topic=y", b"", None),
    ("topic=x&topic_name=y", b"", None),
    ("topic=x", b'{"name":"y"}', JSON),
    ("topic=x", b"topic=y", FORM),
    ("", b'{"topic":"x","topic":"y"}', JSON),
    ("", b'{"partition":1,"partition_id":true}', JSON),
    ("", b'{"partition":1,"partition":true}', JSON),
    ("", b'{"partition":1,"partition_id":"01"}', JSON),
])
def test_two_values_for_one_argument_are_refused(query, body, content_type):
    with pytest.raises(BadRequestError, match="given twice with different values"):
        ask(query, body, content_type)


def test_the_same_value_twice_is_fine():
    assert ask("topic=x&name=x&partition=1", b'{"topic_name":"x","partition_id":1}', JSON).integer("partition") == 1
    assert ask("", b'{"partition":1,"partition":"1","partition":1}', JSON).integer("partition") == 1


@pytest.mark.parametrize(("body", "content_type"), [
    (b"[1]", JSON), (b'"x"', JSON), (b"{", JSON), (b"topic=x", JSON), (b"topic=x", TEXT), (b"\xff", JSON), (b'{"x":NaN}', JSON), (b"{x", FORM),
    (b"topic=%ff", FORM), (b"topic=\xff", FORM), (b'{"topic":"x"}', "application/json; charset=nonsense"),
    (b'{"a":' * 100_000, JSON), (b'{"a":' + b"9" * 5_000 + b"}", JSON), (b"&".join(b"a%d=1" % n for n in range(101)), FORM),
])
def test_a_body_that_cannot_be_read_is_refused(body, content_type):
    with pytest.raises(BadRequestError):
        ask("", body, content_type, "POST")


def test_a_query_that_is_not_utf8_is_refused():
    with pytest.raises(BadRequestError, match="percent-encoded UTF-8"):
        ask("topic=%ff")


@pytest.mark.parametrize("value", [True, False, 1.5, "", " ", "abc", "1.5", [], {}, "-1", -1, 2**63, str(2**63), "9" * 30, "٣"])
def test_what_is_not_a_whole_number_is_refused(value):
    with pytest.raises(BadRequestError):
        ask("", json.dumps({"partition": value}).encode(), JSON).integer("partition")


@pytest.mark.parametrize(("value", "number"), [(0, 0), ("0", 0), ("7", 7), (2**63 - 1, 2**63 - 1)])
def test_whole_numbers_and_their_decimal_form(value, number):
    assert ask("", json.dumps({"partition": value}).encode(), JSON).integer("partition") == number


def test_null_is_not_given_and_zero_is():
    assert ask("", b'{"partition":null}', JSON).integer("partition", default=9) == 9
    assert ask("", b'{"partition":0}', JSON).integer("partition", default=9) == 0


def test_what_is_missing_is_named():
    with pytest.raises(BadRequestError, match="topic is missing"):
        ask().topic()
    with pytest.raises(BadRequestError, match="message is missing"):
        ask().payload()
    with pytest.raises(BadRequestError, match="producer_id is missing"):
        ask().needed_integer("producer_id", minimum=1)


def test_the_argument_is_named_as_the_caller_spelt_it():
    with pytest.raises(BadRequestError, match="partition_number must be a whole number"):
        ask("partition_number=x").integer("partition")


@pytest.mark.parametrize("name", ["", "a/b", "..", "x" * 250, "a b", "ä"])
def test_a_bad_topic_name_states_the_rule(name):
    with pytest.raises(InvalidNameError, match="1 to 249"):
        ask("", json.dumps({"topic": name}).encode(), JSON).topic()


@pytest.mark.parametrize(("body", "payload"), [
    (b'{"message":"this is text"}', b"this is text"), (b'{"log_message":"a\\u0000b"}', b"a\0b"), (b'{"message":""}', b""),
    (b'{"message_base64":"//4="}', b"\xff\xfe"), ('{"message":"ä"}'.encode(), "ä".encode()), (b'{"message":"YWJj"}', b"YWJj")])
def test_a_message_is_its_bytes(body, payload):
    assert ask("", body, JSON, "POST").payload() == payload


@pytest.mark.parametrize("body", [b'{"message":5}', b'{"message":true}', b'{"message":["a"]}', b'{"message":"\\ud800"}', b'{"message_base64":"!"}',
                                  b'{"message":"a","message_base64":"YQ=="}'])
def test_a_message_that_is_no_string_is_refused(body):
    with pytest.raises(BadRequestError):
        ask("", body, JSON, "POST").payload()


def test_a_form_message_keeps_every_character():
    assert ask("", b"message=a%00b%C3%A4+c", FORM, "POST").payload() == "a\0bä c".encode()


def test_failures_of_the_queue_face():
    assert queue_failure(TopicExistsError("Topic 'x' already exists")) == (
        {"status": "failure", "message": "Topic 'x' already exists", "code": "topic_exists"}, 400, {})
    assert queue_failure(TooLargeError())[1] == 413
    body, status, headers = queue_failure(OutcomeUnknownError("who knows"))
    assert (body["outcome"], status, headers) == ("unknown", 503, {"Retry-After": "1"})
    assert queue_failure(UnavailableError())[0]["outcome"] == "not_done"


def test_failures_of_the_partition_face():
    body, status, _ = partition_failure(TopicExistsError("exists"))
    assert (status, body["status"], body["reason"], body["message"]) == (400, "Failure", "exists", "exists")
