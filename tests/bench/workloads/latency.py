"""From ``send`` to the consumer's hands at a steady pace, and whether that changes with time."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from myqueue.client.consumer import MyConsumer
from myqueue.client.producer import MyProducer
from tests.bench.contenders.base import CALL_SECONDS
from tests.bench.contenders.myqueue import MyQueue
from tests.bench.figures import Outcome, quantile
from tests.bench.plan import Case, Entry, Options
from tests.bench.stage import Stage

PER_SECOND = 1_000
TICK_SECONDS = 0.001
PADDING = b"x" * 92  # with the time before it 100 bytes
_TIME = struct.Struct(">d")


def cases(stage: Stage, options: Options) -> Sequence[Case]:
    ours = stage.ours
    return [Case("latency", f"{PER_SECOND:,} messages a second, send to get_next",
                 [Entry(ours.name, ours.acknowledged, ours.roots, partial(_prepare, ours, options.seconds))])]


def _prepare(ours: MyQueue, seconds: float, turn: int, stack: ExitStack) -> Callable[[], Outcome]:
    log, count = f"latency-{turn}", int(seconds * PER_SECOND)
    ours.create(log)
    consumer = stack.enter_context(MyConsumer([log], ours.bootstrap))
    producer = stack.enter_context(MyProducer([log], ours.bootstrap))
    return lambda: steady(producer, consumer, log, count)


def steady(producer: MyProducer, consumer: MyConsumer, log: str, count: int) -> Outcome:
    """Send messages at the pace, take them in, and compare the first third with the last."""
    sender = threading.Thread(target=send_at_pace, args=(producer, log, count), daemon=True)
    sender.start()
    latencies = []
    for message in consumer.get_next(CALL_SECONDS):
        latencies.append(time.monotonic() - sent_at(message.value))
        if len(latencies) == count:
            break
    sender.join(CALL_SECONDS)
    assert len(latencies) == count, f"{count} messages were sent and {len(latencies)} arrived"
    first, last = latencies[: max(1, count // 3)], latencies[-max(1, count // 3):]
    return Outcome(count, latencies, {"p50_first_third_ms": quantile(first, 0.5) * 1e3, "p50_last_third_ms": quantile(last, 0.5) * 1e3,
                                      "p99_first_third_ms": quantile(first, 0.99) * 1e3, "p99_last_third_ms": quantile(last, 0.99) * 1e3})


def send_at_pace(producer: MyProducer, log: str, count: int, stop: threading.Event | None = None) -> None:
    """Each message holds the moment at which it was due: a sender that is late does not hide that."""
    began, send = time.monotonic(), producer.send
    for number in range(count):
        due = began + number / PER_SECOND
        while (now := time.monotonic()) < due:
            time.sleep(min(TICK_SECONDS, due - now))
        if stop is not None and stop.is_set():
            return
        send(log, _TIME.pack(due) + PADDING)


def sent_at(value: bytes) -> float:
    """The moment in a message, by this machine's monotonic clock."""
    return _TIME.unpack_from(value)[0]
