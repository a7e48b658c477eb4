"""What comes in becomes records, or an error that says which part of it is none."""

from __future__ import annotations

import json

import pytest
from flask import Request
from werkzeug.test import EnvironBuilder

from broker.api.bodies import PRODUCE_TYPES, expected_end_offset, produce_body, read_arguments, records_of_lines, topic_identity
from broker.core.offsets import Since
from myqueue.errors import BadRequestError, CorruptBatchError, MyQueueError, TooLargeError, UnsupportedMediaTypeError
from myqueue.protocol.batch import BATCH_TYPE, RECORD_BYTES_MAX, pack_values, records_of

NDJSON = "application/x-ndjson"


def sent(kind: str | None, body: bytes) -> list[bytes]:
    """The values that a produce of this type and body would store."""
    blocks, size = produce_body(Request(EnvironBuilder(method="POST", content_type=kind, data=body).get_environ()))
    assert size > 0
    return [record.value for block in blocks for record in records_of(block)]


def refused(kind: str | None, body: bytes) -> MyQueueError:
    with pytest.raises(MyQueueError) as error:
        sent(kind, body)
    assert (error.value.outcome, error.value.status // 100) == ("not_done", 4)
    return error.value


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=ISO-8859-1", "Application/JSON;Charset=utf-8; x=y", "", None])
def test_json_under_any_spelling(kind: str | None):
    assert sent(kind, b'{"value": "x"}') == [b"x"]
    assert sent(kind, '{"records": [{"value": "ä"}, {"value": ""}]}'.encode()) == ["ä".encode(), b""]


@pytest.mark.parametrize("kind", ["application/x-ndjson", "application/jsonl", "APPLICATION/X-NDJSON; charset=utf-8"])
def test_a_record_a_line(kind: str):
    """Lines end as they like, the last one also without an end; those without anything in them do not count."""
    assert sent(kind, b'\n{"value": "a"}\r\n  \n\r\n{"value": "b\\n"}\n\t\n{"value_base64": "/w=="}') == [b"a", b"b\n", b"\xff"]


@pytest.mark.parametrize(("line", "said"), [
    (b"nonsense", "not JSON"), (b"{", "not JSON"), (b"\xff", "not JSON"), (b"[1]", "JSON object"), (b'"x"', "JSON object"), (b"null", "JSON object"),
    (b"{}", "needs value"), (b'{"value": 1}', "string"), (b'{"value_base64": "***"}', "base64"), (b'{"value": "x", "more": 1}', "more"),
    (b'{"records": [{"value": "x"}]}', "records"), (b'{"value": "a"} {"value": "b"}', "not JSON"), (b"[" * 100_000, "not JSON")])
def test_a_bad_line_is_named(line: bytes, said: str):
    """By its number from 1 on, empty lines counted: as an editor shows it."""
    error = refused(NDJSON, b'{"value": "good"}\n\n' + line + b'\n{"value": "good"}\nalso bad')
    assert isinstance(error, BadRequestError)
    assert error.details["line"] == 3
    assert error.message.startswith("line 3: ")
    assert said in error.message


@pytest.mark.parametrize("body", [b"", b"\n", b"  \r\n\n"])
def test_lines_without_a_record_are_refused(body: bytes):
    assert "no record" in refused(NDJSON, body).message


def test_a_bad_record_of_a_batch_is_named():
    """By its place from 0 on, as offsets are counted."""
    error = refused("application/json", b'{"records": [{"value": "a"}, {"value": "b"}, {"value": 5}, {"value": 6}]}')
    assert (error.details["record"], error.message) == (2, "record 2: value must be a string")
    assert "record" not in refused("application/json", b'{"value": 5}').details


def test_sizes_are_those_of_any_other_produce():
    """A record too large is named too; all together they have the bound of a batch."""
    large = json.dumps({"value": "x" * (RECORD_BYTES_MAX + 1)}).encode()
    error = refused(NDJSON, b'{"value": "a"}\n' + large)
    assert (type(error), error.details["line"], error.details["maximum"]) == (TooLargeError, 2, RECORD_BYTES_MAX)
    error = refused("application/json", b'{"records": [{"value": "a"}, ' + large + b"]}")
    assert (type(error), error.details["record"]) == (TooLargeError, 1)
    fits = json.dumps({"value": "x" * RECORD_BYTES_MAX}).encode() + b"\n"
    assert len(sent(NDJSON, fits * 7)) == 7
    assert isinstance(refused(NDJSON, fits * 8), TooLargeError)


def test_a_bad_block_of_a_batch_is_named():
    good, other = pack_values([b"a" * 5_000, b"b" * 5_000]), pack_values([b"c"])[4:]
    assert len(sent(BATCH_TYPE, good + other)) == 3
    error = refused(BATCH_TYPE, good + other[:-1])
    assert (type(error), error.details["block"]) == (CorruptBatchError, 2)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonlines", "nonsense", "a/b; charset=x"])
def test_a_foreign_type_names_the_good_ones(kind: str):
    """Before the body is looked at."""
    error = refused(kind, b"")
    assert isinstance(error, UnsupportedMediaTypeError)
    assert error.details["supported"] == list(PRODUCE_TYPES)
    assert all(good in error.message for good in PRODUCE_TYPES)


@pytest.mark.parametrize("encoded", ["***", "eA", "eA=", "eA===", "e A==", "eA==\n", "ä", "=", "eA==eA=="])
def test_what_is_not_base64_is_refused(encoded: str):
    assert "base64" in refused(None, json.dumps({"value_base64": encoded}).encode()).message


def test_the_lines_of_a_large_body_are_read_in_order():
    lines = b"".join(b'{"value":"%d"}\n' % number for number in range(20_000))
    assert [record.value for record in records_of_lines(lines)] == [b"%d" % number for number in range(20_000)]


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "9223372036854775808", "true", "0x1"])
def test_odd_expectations_are_refused(text: str):
    with pytest.raises(BadRequestError, match="expected_end_offset"):
        expected_end_offset({"expected_end_offset": text})


def test_expectations():
    assert expected_end_offset({}) is None
    assert expected_end_offset({"expected_end_offset": "0"}) == 0


@pytest.mark.parametrize(("arguments", "start"), [
    ({}, "earliest"), ({"offset": "latest"}, "latest"), ({"offset": "0"}, 0), ({"offset": "-5"}, -5), ({"offset": str(2**63 - 1)}, 2**63 - 1),
    ({"timestamp": "0"}, Since(0)), ({"timestamp": "1700000000123456"}, Since(1_700_000_000_123_456)),
    ({"timestamp": str(2**63 - 1)}, Since(2**63 - 1))])
def test_where_a_read_begins(arguments: dict[str, str], start: object):
    assert read_arguments(arguments)[0] == start


@pytest.mark.parametrize(("arguments", "said"), [
    *[({"offset": text}, "or earliest or latest") for text in ("", "x", "1.5", str(2**63), "Latest", "9" * 40, "1e3")],
    *[({"timestamp": text}, "microseconds since 1970") for text in ("", "x", "-1", "1.5", str(2**63), "latest", "9" * 40)],
    *[({"until_offset": text}, "until_offset") for text in ("", "x", "-1", "1.5", str(2**63), "latest")],
    ({"offset": "0", "timestamp": "0"}, "both given"), ({"offset": "earliest", "timestamp": "0"}, "both given"),
    ({"offset": "5", "until_offset": "4"}, "until_offset 4 lies below offset 5")])
def test_what_no_read_can_mean_is_refused(arguments: dict[str, str], said: str):
    with pytest.raises(BadRequestError, match=said) as error:
        read_arguments(arguments)
    assert "argument" in error.value.details


def test_bounds_of_a_read():
    assert read_arguments({})[1] == {"until_offset": None, "bytes_max": 1 << 20, "wait_seconds": 0.0}
    assert read_arguments({"offset": "4", "until_offset": "4"})[1]["until_offset"] == 4
    assert read_arguments({"timestamp": "9", "until_offset": "0"})[1]["until_offset"] == 0


def test_topic_identities():
    assert (topic_identity({}), topic_identity({"topic_id": "7"})) == (None, 7)
    for text in ("", "-1", "x", "1.5", str(2**63)):
        with pytest.raises(BadRequestError, match="topic_id"):
            topic_identity({"topic_id": text})
