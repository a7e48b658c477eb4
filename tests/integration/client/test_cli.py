"""The command line over a real socket, before a cluster in memory: bytes, exit codes, sentences."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from myqueue.cli.main import main
from myqueue.errors import UnreachableError
from myqueue.testing import InMemoryTransport
from tests.support.served_memory import served

NASTY = b"\n\nfirst\r\n\x00\xff\xfe tab\there\n\n" + bytes(range(256)).replace(b"\n", b"") + b"\nno final LF"


@pytest.fixture
def transport() -> InMemoryTransport:
    return InMemoryTransport()


@pytest.fixture
def address(transport: InMemoryTransport) -> Iterator[str]:
    with served(transport) as at:
        yield at


class Done(NamedTuple):
    """What a command left behind."""

    stdout: bytes
    stderr: bytes


@pytest.fixture
def myqueue(address: str, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch):
    """Runs a command in this process, which is quicker than one of its own."""
    monkeypatch.setenv("MYQUEUE_BOOTSTRAP", address)
    monkeypatch.delenv("MYQUEUE_TOKEN", raising=False)

    def run(*words: str, stdin: bytes = b"", code: int = 0) -> Done:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            ended = main(words)
        except SystemExit as usage:
            ended = usage.code
        sys.stdout.flush()
        done = Done(*capfdbinary.readouterr())
        assert code == ended, done.stderr.decode()
        return done

    return run


def values(transport: InMemoryTransport, topic: str = "t", partition: int = 0) -> list[bytes]:
    return [message.value for message in transport.messages(topic, partition)]


def test_a_file_is_split_at_lf_only(myqueue, transport, tmp_path) -> None:
    """A CR stays, an empty line is an empty message, NULs and all other bytes pass."""
    file = tmp_path / "nasty"
    file.write_bytes(NASTY)
    done = myqueue("produce", "t", str(file))
    assert NASTY.split(b"\n") == values(transport)
    assert b"7 messages sent to t\n" == done.stdout


@pytest.mark.parametrize(("stdin", "messages"), [
    (b"", []), (b"\n", [b""]), (b"a", [b"a"]), (b"a\n", [b"a"]), (b"a\n\n", [b"a", b""]), (b"a\r\nb\r\n", [b"a\r", b"b\r"]), (b"\r", [b"\r"]),
])
def test_standard_input_is_split_the_same_way(myqueue, transport, stdin: bytes, messages: list[bytes]) -> None:
    transport.create_topic("t")
    myqueue("produce", "t", stdin=stdin)
    assert messages == values(transport)


def test_a_text_file_with_a_final_lf_comes_back_equal(myqueue, tmp_path) -> None:
    content = NASTY + b"\n"
    (tmp_path / "in").write_bytes(content)
    myqueue("produce", "t", str(tmp_path / "in"))
    myqueue("consume", "t", "--timeout", "1", "--output", str(tmp_path / "out"))
    assert hashlib.sha256(content).hexdigest() == hashlib.sha256((tmp_path / "out").read_bytes()).hexdigest()
    assert content == myqueue("consume", "t", "--timeout", "1").stdout


@pytest.mark.parametrize("content", [b"", b"\n", NASTY, b"x" * (1 << 20)])
def test_a_whole_file_comes_back_equal(myqueue, transport, tmp_path, content: bytes) -> None:
    (tmp_path / "in").write_bytes(content)
    myqueue("produce", "--whole", "t", str(tmp_path / "in"))
    assert [content] == values(transport)
    assert content == myqueue("consume", "t", "--max-messages", "1", "--format", "raw").stdout


def test_ndjson_tells_all_of_a_message(myqueue, transport) -> None:
    myqueue("produce", "t", "--key", "k", stdin=b"\xff\ntext\n")
    lines = [json.loads(line) for line in myqueue("consume", "t", "--timeout", "1", "--format", "ndjson").stdout.splitlines()]
    assert [{"topic": "t", "partition": 0, "offset": 0, "value_base64": "/w==", "key": "k"},
            {"topic": "t", "partition": 0, "offset": 1, "value": "text", "key": "k"}] == [
        {name: value for name, value in line.items() if name != "timestamp"} for line in lines]


def test_produce_keeps_receipts(myqueue, tmp_path: Path) -> None:
    """Appended to the file, one for each batch, however many the lines make; and where they cannot be written that is told with exit code 1,
    and nothing else is.
    """
    receipts, batches = tmp_path / "receipts", []
    for _ in range(2):
        myqueue("produce", "t", "--receipts", str(receipts), stdin=b"1\n2\n3\n")
        found = [json.loads(line) for line in receipts.read_text().splitlines()]
        assert {("t", 0)} == {(receipt["topic"], receipt["partition"]) for receipt in found}
        batches.append([(receipt["base_offset"], receipt["record_count"]) for receipt in found])
    first, both = batches
    assert first == both[:len(first)]
    assert [0, 1, 2, 3, 4, 5] == [offset for base, count in both for offset in range(base, base + count)]
    done = myqueue("produce", "t", "--receipts", "/dev/full", stdin=b"4\n", code=1)
    assert b"" == done.stdout and b"do not send them again" in done.stderr and 1 == done.stderr.count(b"\n")
    assert b"Not a directory" in myqueue("produce", "t", "--receipts", "/dev/null/x", stdin=b"5\n", code=1).stderr


@pytest.mark.parametrize("words", [["produce", "t"], ["produce", "--whole", "t"]])
def test_a_message_over_the_limit_is_a_sentence_and_1_and_the_lines_before_it_are_sent(myqueue, transport, words, tmp_path) -> None:
    (tmp_path / "in").write_bytes((b"" if "--whole" in words else b"before\n") + b"x" * ((1 << 20) + 1))
    done = myqueue(*words, str(tmp_path / "in"), code=1)
    assert b"more than 1048576 bytes" in done.stderr
    assert ([] if "--whole" in words else [b"before"]) == values(transport)


def test_undelivered_messages_are_counted_and_the_exit_code_is_1(myqueue, transport) -> None:
    transport.create_topic("t")

    def away(method: str, url: str) -> None:
        if url.endswith("/records"):
            raise UnreachableError

    transport.on_request = away
    done = myqueue("produce", "t", "--timeout", "1", stdin=b"1\n" * 10, code=1)
    assert b"10 messages were not delivered" in done.stderr
    assert b"" == done.stdout


def test_a_consumer_goes_on_where_it_committed(myqueue) -> None:
    myqueue("produce", "t", stdin=b"1\n2\n3\n")
    first = myqueue("consume", "t", "--max-messages", "2")
    assert b"1\n2\n" == first.stdout
    assert b"2 messages from t, consumer 1\n" == first.stderr
    assert b"3\n" == myqueue("consume", "t", "--consumer-id", "1", "--timeout", "1").stdout
    lag = json.loads(myqueue("lag", "t", "1", "--json").stdout)
    assert [{"topic": "t", "partition": 0, "offset": 3, "end_offset": 3, "lag": 0}] == lag
    assert b"not registered" in myqueue("lag", "t", "9", code=1).stderr


def test_latest_shows_nothing_old(myqueue) -> None:
    myqueue("produce", "t", stdin=b"old\n")
    assert b"" == myqueue("consume", "t", "--latest", "--timeout", "0.5").stdout


def test_messages_since_a_time(myqueue, transport) -> None:
    """Of every partition, also where the consumer has gone further already."""
    transport.create_topic("t", 2)
    for number in range(3):
        for partition in ("0", "1"):
            myqueue("produce", "t", "--partition", partition, stdin=b"%d\n" % number)
    [_, second, _] = [message.timestamp for message in transport.messages("t", 1)]
    since = str(second)
    assert [b"1", b"2", b"2"] == sorted(myqueue("consume", "t", "--from-timestamp", since, "--timeout", "1").stdout.split())
    again = myqueue("consume", "t", "--consumer-id", "1", "--from-timestamp", since, "--timeout", "1").stdout
    assert [b"1", b"2", b"2"] == sorted(again.split())
    assert 6 == len(myqueue("consume", "t", "--from-timestamp", "0", "--timeout", "1").stdout.split())


def test_topics_are_created_listed_and_described(myqueue) -> None:
    assert b"there are no topics\n" == myqueue("topics", "list").stdout
    assert b"topic t has 3 partitions\n" == myqueue("topics", "create", "t", "--partitions", "3").stdout
    assert b"exists already" in myqueue("topics", "create", "t", code=1).stderr
    myqueue("topics", "create", "t", "--if-not-exists")
    assert b"topic  topic_id  partitions  replication_factor\nt             1           3                   1\n" == myqueue("topics", "list").stdout
    described = json.loads(myqueue("topics", "describe", "t", "--json").stdout)
    assert [(0, 0), (1, 0), (2, 0)] == [(row["partition"], row["end_offset"]) for row in described]


def test_a_partition_is_trimmed(myqueue) -> None:
    """Again is a success; an offset above the end is one sentence with the bounds."""
    myqueue("topics", "create", "t")
    myqueue("produce", "t", stdin=b"a\nb\nc\n")
    for _ in range(2):
        assert b"partition 0 of topic t begins at offset 2\n" == myqueue("topics", "trim", "t", "--partition", "0", "--before", "2").stdout
    assert b"c\n" == myqueue("consume", "t", "--from-beginning", "--max-messages", "1").stdout
    assert b"the log has offsets 2 to 3" in myqueue("topics", "trim", "t", "--partition", "0", "--before", "4", code=1).stderr
    assert b"nope" in myqueue("topics", "trim", "nope", "--partition", "0", "--before", "0", code=1).stderr
    assert b"partitions" in myqueue("topics", "trim", "t", "--partition", "5", "--before", "0", code=1).stderr
    assert b"--before" in myqueue("topics", "trim", "t", "--partition", "0", code=2).stderr


def test_partitions_are_added_by_their_total(myqueue) -> None:
    """Again changes nothing; fewer is one sentence."""
    myqueue("topics", "create", "t", "--partitions", "2")
    for added in (3, 0):
        assert f"topic t has 5 partitions, {added} of them new\n".encode() == myqueue("topics", "add-partitions", "t", "--partitions", "5").stdout
    assert 5 == len(json.loads(myqueue("topics", "describe", "t", "--json").stdout))
    assert b"has 5 partitions" in myqueue("topics", "add-partitions", "t", "--partitions", "4", code=1).stderr
    assert b"nope" in myqueue("topics", "add-partitions", "nope", "--partitions", "4", code=1).stderr
    assert b"--partitions" in myqueue("topics", "add-partitions", "t", code=2).stderr


def test_messages_are_found_by_key_and_time(myqueue, transport) -> None:
    transport.create_topic("t", 3)
    myqueue("produce", "t", "--key", "k", stdin=b"1\n2\n")
    myqueue("produce", "t", "--key", "other", stdin=b"3\n")
    done = myqueue("search", "t", "--key", "k", "--format", "text")
    assert (b"1\n2\n", b"2 messages of t found\n") == (done.stdout, done.stderr)
    assert b"1\n" == myqueue("search", "t", "--key", "k", "--max-messages", "1", "--format", "text").stdout
    [line] = myqueue("search", "t", "--key", "other", "--from", "2001-01-01", "--to", str(2**62)).stdout.splitlines()
    assert (b"3", "other") == (json.loads(line)["value"].encode(), json.loads(line)["key"])
    assert b"" == myqueue("search", "t", "--from", "2001-01-01T00:00:00Z", "--to", "2001-01-02T00:00:00+01:00").stdout
    assert b"--key" in myqueue("search", "t", code=2).stderr
    assert b"microseconds" in myqueue("search", "t", "--from", "yesterday", code=2).stderr
    assert b"nope" in myqueue("search", "nope", "--key", "k", code=1).stderr


def test_brokers_and_health_are_shown(myqueue, address) -> None:
    assert str(address.split(":")[1]) in myqueue("brokers").stdout.decode()
    assert b"alive" in myqueue("health").stdout


@pytest.mark.parametrize("words", [["consume", "nope", "--timeout", "1"], ["topics", "describe", "nope"], ["lag", "nope", "1"]])
def test_a_topic_that_is_not_there_is_one_sentence_and_1(myqueue, words: list[str]) -> None:
    done = myqueue(*words, code=1)
    assert b"" == done.stdout
    assert done.stderr.startswith(b"myqueue: ")
    assert 1 == done.stderr.count(b"\n")
    assert b"nope" in done.stderr


@pytest.mark.parametrize("words", [
    ["produce"], ["consume", "t", "--max-messages", "0"], ["consume", "t", "--latest", "--from-beginning"], ["consume", "t", "--timeout", "nan"],
    ["consume", "t", "--from-timestamp", "-1"], ["consume", "t", "--from-timestamp", "1.5"], ["consume", "t", "--from-timestamp", "0", "--latest"],
    ["lag", "t", "x"], ["produce", "t", "--partition", "-1"], ["topics", "create", "t", "--partitions", "1.5"], ["consume", "t", "--format", "xml"],
])
def test_wrong_usage_is_2(myqueue, words: list[str]) -> None:
    assert b"usage:" in myqueue(*words, code=2).stderr


@pytest.mark.parametrize("words", [
    ["produce", "t", "/none/at/all"], ["consume", "t", "--output", "/none/at/all"], ["topics", "list", "--bootstrap", "a:b"],
    ["topics", "create", "a/b"],
])
def test_what_cannot_work_is_one_sentence_and_1(myqueue, transport, words: list[str]) -> None:
    transport.create_topic("t")
    assert 1 == myqueue(*words, code=1).stderr.count(b"\n")


def test_nobody_at_the_address_is_one_sentence_and_1(myqueue) -> None:
    done = myqueue("produce", "t", "--bootstrap", "127.0.0.1:1", code=1)
    assert b"myqueue: no connection to 127.0.0.1:1\n" == done.stderr


def test_a_reader_that_went_away_is_no_traceback(address, transport, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"line\n" * 50_000)
    script = f"'{sys.executable}' -m myqueue produce t '{tmp_path / 'in'}' >&2 && '{sys.executable}' -m myqueue consume t --timeout 2 | head -1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, timeout=40, check=False,
                          env={"PATH": os.environ["PATH"], "MYQUEUE_BOOTSTRAP": address})
    assert b"line\n" == done.stdout
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr
