"""The few messages of foreign protocols that are written by hand, against their specifications."""

from __future__ import annotations

from tests.bench.contenders.rabbitmq import frame, publication, short, table
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
