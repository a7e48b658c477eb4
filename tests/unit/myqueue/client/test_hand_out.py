"""What a member of a group hands out while its partition goes to another one."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from myqueue import MyConsumer
from myqueue.client.fetcher import Reader
from myqueue.client.slow_start import SlowStart
from myqueue.protocol.types import Message, TopicPartition


@pytest.mark.parametrize(("goes", "expected"), [(True, []), (False, [0])])
def test_a_message_whose_partition_went_while_it_was_announced_is_not_handed_out(goes: bool, expected: list[int]) -> None:
    reader = Reader(TopicPartition("t", 0), 0, "")
    reader.begin(0, 0)
    reader.slow_start = SlowStart()
    generation = reader.generation
    consumer = MyConsumer.__new__(MyConsumer)
    consumer._stopped, consumer._auto_done, consumer._changed = None, False, threading.Condition()

    def announce(of: Reader, _offset: int) -> None:
        of.generation += goes

    consumer._group = SimpleNamespace(announce=announce)  # type: ignore[assignment]
    consumer._redelivery = SimpleNamespace(deliveries=lambda message: 1)  # type: ignore[assignment]
    consumer._dead_letters = SimpleNamespace(is_due=lambda deaths: False)  # type: ignore[assignment]
    consumer._fetcher = SimpleNamespace(finish=lambda chunk: None)  # type: ignore[assignment]
    chunk = SimpleNamespace(reader=reader, generation=generation, messages=iter([Message("t", 0, 0, b"")]))
    assert expected == [message.offset for message in consumer._hand_out(chunk)]  # type: ignore[arg-type]
