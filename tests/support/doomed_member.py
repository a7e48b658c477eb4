"""A member of a consumer group as a process of its own that dies of a message at once, without a word: one whose value is "poison".

    python -m tests.support.doomed_member BOOTSTRAP TOPIC GROUP FILE DEAD_LETTER_TOPIC MAX_DELIVERIES (auto | by-hand)

Writes what it has dealt with to the file as ``group_member`` does, and ends well when the group has dealt with everything.
"""

from __future__ import annotations

import os
import sys

from myqueue import AdminClient, MyConsumer

from .group_member import line_of

QUIET_SECONDS = 1.0
EXIT_CODE = 9


def main(bootstrap: str, topic: str, group: str, file: str, dead_letter_topic: str, max_deliveries: str, done: str) -> None:
    # Under its own name it takes its place over from itself, so that nobody waits for the end of its session.
    with open(file, "a", buffering=1, encoding="utf-8") as out, \
            MyConsumer([topic], bootstrap, group=group, instance_id="doomed", dead_letter_topic=dead_letter_topic,
                       max_deliveries=int(max_deliveries), auto_done=done == "auto") as consumer:
        while not is_all_read(bootstrap, group):
            for message in consumer.get_next(QUIET_SECONDS):
                if message.value == b"poison":
                    os._exit(EXIT_CODE)
                out.write(line_of(message))
                if done != "auto":
                    consumer.done(message)
            consumer.commit()


def is_all_read(bootstrap: str, group: str) -> bool:
    with AdminClient(bootstrap) as admin:
        return sum(one.lag for one in admin.group_lag(group)) == 0


if __name__ == "__main__":
    main(*sys.argv[1:])
