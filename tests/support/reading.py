"""Reading all that is due: the end of it is a number, not a silence, which on a busy machine comes early."""

from __future__ import annotations

import itertools

from myqueue import AdminClient, Message, MyConsumer

WAIT_SECONDS = 60.0  # for one message
QUIET_SECONDS = 0.3  # in which something would come that is not due


def read_due(consumer: MyConsumer, count: int) -> list[Message]:
    """The next ``count`` messages, however late they come, and whatever comes behind them by mistake."""
    return [*itertools.islice(consumer.get_next(WAIT_SECONDS), count), *consumer.get_next(QUIET_SECONDS)]


def read_all(bootstrap: str, topic: str) -> list[Message]:
    """What a topic holds, by a consumer of its own."""
    with AdminClient(bootstrap) as admin:
        due = sum(ends.end - ends.start for ends in admin.offsets(topic).values())
    with MyConsumer([topic], bootstrap) as consumer:
        return read_due(consumer, due)
