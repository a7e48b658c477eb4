"""How fast one process stores messages in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from tests.bench.contenders.base import Contender
from tests.bench.figures import Outcome
from tests.bench.plan import POSTGRES, SKETCH, THOUSANDS, Case, Entry, Options
from tests.bench.stage import Stage

SDK_RECORDS, SDK_BYTES, SDK_RECORD_BYTES = 10_000, 2 << 20, 64  # a batch of the SDK: at most so many, and so many bytes with this for each
SIZES = ((THOUSANDS, 100, 1_000), ("100 B, the SDK's batches", 100, None), ("1 KiB, the SDK's batches", 1024, None))
LARGER_SHARE = 2  # of messages of 1 KiB half as many


def cases(stage: Stage, options: Options) -> Sequence[Case]:
    contenders = [stage.ours, stage.postgres, stage.sketch, *stage.peers]
    return [Case("produce", name, [entry(contender, size, batch or sdk_batch(size), options.messages // (1 if size <= 100 else LARGER_SHARE))
                                   for contender in contenders], (POSTGRES, SKETCH)) for name, size, batch in SIZES]


def sdk_batch(size: int) -> int:
    """How many messages of a size the SDK puts into one request, of its own accord."""
    return min(SDK_RECORDS, SDK_BYTES // (size + SDK_RECORD_BYTES))


def entry(contender: Contender, size: int, batch: int, messages: int) -> Entry:
    return Entry(contender.name, contender.acknowledged, contender.roots,
                 partial(_prepare, contender, b"x" * size, batch, max(1, min(messages, contender.messages_max))))


def _prepare(contender: Contender, value: bytes, batch: int, count: int, turn: int, stack: ExitStack) -> Callable[[], Outcome]:
    log = f"produce-{len(value)}-{batch}-{turn}"
    contender.create(log)
    produce = contender.producing(log, value, count, batch, stack)

    def work() -> Outcome:
        produce()
        return Outcome(count)

    return work
