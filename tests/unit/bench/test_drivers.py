"""The few messages of foreign protocols that are written by hand, against their specifications; what the libraries are told."""

from __future__ import annotations

from types import SimpleNamespace

from tests.bench.contenders.base import CALL_SECONDS
from tests.bench.contenders.rabbitmq import Confirms, Pika, frame, parameters, publication, short, table
from tests.bench.contenders.redis import command


def test_a_redis_command_is_an_array_of_strings() -> None:
    assert b"*3\r\n$4\r\nXADD\r\n$1\r\ns\r\n$2\r\n\x00\r\r\n" == command("XADD", "s", b"\x00\r")


def test_an_amqp_frame_says_its_size_and_ends_with_a_mark() -> None:
    assert b"\x01\x00\x01\x00\x00\x00\x02hi\xce" == frame(1, b"hi")
    assert b"\x00\x00\x00\x08\x01xS\x00\x00\x00\x01y" == table({"x": "y"})
    assert b"\x02ab" == short("ab")


def test_an_amqp_message_is_method_head_and_body() -> None:
    sent = publication("q", b"value")
    assert 3 == sent.count(b"\xce") and sent.endswith(b"value\xce")
    assert b"\x00\x3c\x00\x28" == sent[7:11], "basic.publish"


def test_confirms_come_in_any_order_and_many_at_once() -> None:
    confirms, seen = Confirms(), []
    for number, multiple in ((2, False), (1, False), (5, False), (4, True), (3, True), (7, False), (8, True)):
        confirms.add(number, multiple=multiple)
        seen.append(confirms.last)
    assert [0, 2, 2, 5, 5, 5, 8] == seen


def test_pika_waits_for_nothing_without_a_limit() -> None:
    told = parameters(5672)
    assert [CALL_SECONDS] * 4 == [told.socket_timeout, told.stack_timeout, told.blocked_connection_timeout, told.heartbeat]


def test_pika_has_queues_of_its_own_on_the_same_server() -> None:
    made: list[str] = []
    server = SimpleNamespace(roots={"server": [7]}, create=made.append)
    contender = Pika(server)  # type: ignore[arg-type]
    contender.create("log")
    assert (["pika-log"], {"server": [7]}) == (made, contender.roots)
