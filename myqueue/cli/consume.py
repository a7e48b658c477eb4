"""``myqueue consume``: messages to standard output or a file, byte for byte."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from ..client.consumer import MyConsumer
from ..protocol import wire
from ..protocol.types import Message
from .connecting import add_bootstrap, moment, number, token, unwritable


def _text(message: Message) -> bytes:
    return message.value + b"\n"


def _raw(message: Message) -> bytes:
    return message.value


def _ndjson(message: Message) -> bytes:
    body = {"topic": message.topic, "partition": message.partition, **wire.message_to_json(message)}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


FORMATS: dict[str, Callable[[Message], bytes]] = {"text": _text, "raw": _raw, "ndjson": _ndjson}


def add_parser(groups: Any) -> None:
    """Everything there is, unless told otherwise, until Ctrl-C."""
    text = "write a topic's messages to standard output or a file"
    parser = groups.add_parser("consume", help=text, description=text)
    parser.add_argument("topic", metavar="TOPIC")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--from-beginning", action="store_const", dest="start", const="earliest", default="earliest",
                       help="begin at the earliest message (the default)")
    start.add_argument("--latest", action="store_const", dest="start", const="latest", help="only what is sent from now on")
    start.add_argument("--from-timestamp", type=moment, metavar="TIME",
                       help="begin at the first message appended at or after this time, whatever was committed: microseconds since 1970, or as "
                            "2026-03-01T12:00:00Z (UTC where no zone is given)")
    who = parser.add_mutually_exclusive_group()
    who.add_argument("--group", metavar="NAME", help="as a member of a consumer group, whose members share the topic's partitions")
    who.add_argument("--consumer-id", type=number(1), metavar="N", help="go on as a consumer registered before, from what it has committed")
    parser.add_argument("--max-messages", type=number(1), metavar="N", help="end after so many")
    parser.add_argument("--timeout", type=number(0, float), metavar="SECONDS", help="end when none came for so long (default: wait on)")
    parser.add_argument("--output", metavar="FILE", help="write there instead of standard output")
    parser.add_argument("--format", choices=tuple(FORMATS), default="text",
                        help="text: the value and an LF; raw: the values and nothing between them; ndjson: all of a message, one JSON object a line "
                             "(default: text)")
    add_bootstrap(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """What was written is committed; the summary goes to stderr."""
    encode, count = FORMATS[arguments.format], 0
    with _opened(arguments.output) as (out, is_live), \
            MyConsumer([arguments.topic], arguments.bootstrap, start=arguments.start, consumer_id=arguments.consumer_id, group=arguments.group,
                       token=token(), auto_commit_seconds=5.0 if is_live else None) as consumer:
        if arguments.from_timestamp is not None:
            consumer.seek_to_timestamp(arguments.topic, None, arguments.from_timestamp)
        with contextlib.suppress(KeyboardInterrupt):  # the ordinary end of a command that waits on
            for message in consumer.get_next(arguments.timeout):
                out.write(encode(message))
                if is_live:
                    out.flush()
                count += 1
                if count == arguments.max_messages:
                    break
        out.flush()
        consumer.commit()
        who = f"consumer {consumer.consumer_ids[arguments.topic]}" if arguments.group is None else f"group {arguments.group}"
        print(f"{count} message{'s' if count != 1 else ''} from {arguments.topic}, {who}", file=sys.stderr)
    return 0


@contextlib.contextmanager
def _opened(name: str | None) -> Iterator[tuple[BinaryIO, bool]]:
    """The output, and whether somebody may be waiting at its other end."""
    if name is None or name == "-":
        yield sys.stdout.buffer, True
        return
    try:
        with open(name, "wb") as file:
            yield file, False
    except OSError as error:
        raise unwritable(name, error) from None
