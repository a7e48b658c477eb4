"""``myqueue search``: messages by key and by the time at which they were appended."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from .connecting import add_bootstrap, admin, existing, moment, number
from .consume import FORMATS


def add_parser(groups: Any) -> None:
    """Complete over all partitions; by partition and offset."""
    text = "find messages by key and by the time at which they were appended, in all partitions"
    parser = groups.add_parser("search", help=text, description=text)
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--key", help="with exactly this key")
    parser.add_argument("--from", type=moment, dest="from_us", metavar="TIME",
                        help="appended at this time or later: microseconds since 1970, as in a message's timestamp, or as 2026-03-01T12:00:00Z "
                             "(UTC where no zone is given)")
    parser.add_argument("--to", type=moment, dest="to_us", metavar="TIME", help="appended before this time")
    parser.add_argument("--max-messages", type=number(1), metavar="N", help="end after so many")
    parser.add_argument("--format", choices=tuple(FORMATS), default="ndjson",
                        help="ndjson: all of a message, one JSON object a line; text: the value and an LF; raw: the values and nothing between them "
                             "(default: ndjson)")
    add_bootstrap(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """The summary goes to stderr; nothing found is no failure."""
    if arguments.key is None and arguments.from_us is None and arguments.to_us is None:
        print("myqueue search: say --key, --from or --to", file=sys.stderr)
        return 2
    encode, count = FORMATS[arguments.format], 0
    with admin(arguments) as client:
        for message in client.search(existing(client, arguments.topic), key=arguments.key, from_us=arguments.from_us, to_us=arguments.to_us,
                                     page_records=int(min(arguments.max_messages or 1_000, 1_000))):
            sys.stdout.buffer.write(encode(message))
            count += 1
            if count == arguments.max_messages:
                break
    sys.stdout.buffer.flush()
    print(f"{count} message{'s' if count != 1 else ''} of {arguments.topic} found", file=sys.stderr)
    return 0
