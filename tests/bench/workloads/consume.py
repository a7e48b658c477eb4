"""How fast one process reads a log from its beginning. PostgreSQL alone hands its blocks out; in a second row they are cut into messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from tests.bench.contenders.base import Contender
from tests.bench.figures import Outcome
from tests.bench.plan import POSTGRES, Case, Entry, Options
from tests.bench.stage import Stage

SIZE, BATCH = 100, 1_000
LONGER = 4  # times the messages of another round: they are read faster than written, and the start is not what is measured
Open = Callable[[str, ExitStack], Callable[[int], int]]


def cases(stage: Stage, options: Options) -> Sequence[Case]:
    filled: set[tuple[str, str]] = set()
    readers = [(contender, contender.name, contender.consuming) for contender in (stage.ours, stage.postgres, *stage.peers)]
    readers.insert(2, (stage.postgres, f"{POSTGRES}, cut into messages", stage.postgres.consuming_messages))
    entries = [Entry(who, contender.acknowledged, contender.roots,
                     partial(_prepare, contender, consuming, min(LONGER * options.messages, contender.messages_max), filled))
               for contender, who, consuming in readers]
    return [Case("consume", "100 B from the beginning", entries, (POSTGRES,))]


def _prepare(contender: Contender, consuming: Open, count: int, filled: set[tuple[str, str]], turn: int,
             stack: ExitStack) -> Callable[[], Outcome]:
    log = f"consume-{turn if contender.reads_once else 0}"
    if (contender.name, log) not in filled:
        contender.create(log)
        with ExitStack() as filling:
            contender.producing(log, b"x" * SIZE, count, BATCH, filling)()
        filled.add((contender.name, log))
    consume = consuming(log, stack)

    def work() -> Outcome:
        seen = consume(count)
        assert seen == count, f"{count} messages were acknowledged and {seen} could be read"
        return Outcome(count)

    return work
