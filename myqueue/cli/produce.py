"""``myqueue produce``: lines or whole files become messages, byte for byte."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

from ..client.producer import MyProducer
from ..errors import TooLargeError
from ..protocol.batch import RECORD_BYTES_MAX
from .connecting import add_bootstrap, number, token, unwritable


def add_parser(groups: Any) -> None:
    """A file is split at LF only: a CR stays, an empty line is an empty message, a final LF makes no further one."""
    parser = groups.add_parser("produce", help="send lines or files as messages",
                               description="send each line of a file (or of standard input) as a message; split at LF only, so a CR stays, "
                                           "an empty line is an empty message, and a final LF makes no further one")
    parser.add_argument("topic", metavar="TOPIC", help="created with one partition where it does not exist")
    parser.add_argument("files", metavar="FILE", nargs="*", help="one after the other; none or -: standard input")
    parser.add_argument("--whole", action="store_true", help="each file is one message, whatever it holds")
    parser.add_argument("--key", help="the key of every message: all go to the key's partition, in order")
    parser.add_argument("--partition", type=number(0), metavar="N", help="the partition of every message")
    parser.add_argument("--timeout", type=number(0, float), default=60.0, metavar="SECONDS",
                        help="how long to wait for the last answers (default: 60)")
    parser.add_argument("--receipts", metavar="FILE",
                        help="append a line of JSON to this file for each batch that is acknowledged: where its messages are stored")
    add_bootstrap(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Exit code 1, with the count on stderr, where a message was not delivered or a receipt not written."""
    sent = 0
    producer = MyProducer([arguments.topic], arguments.bootstrap, token=token(), delivery_timeout_seconds=max(arguments.timeout, 1.0),
                          receipts=arguments.receipts)
    try:
        for name in arguments.files or ["-"]:
            with _opened(name) as file:
                for value in [_whole(file, name)] if arguments.whole else lines_of(file, name):
                    producer.send(arguments.topic, value, key=arguments.key, partition=arguments.partition)
                    sent += 1
    finally:
        producer.stop(arguments.timeout)  # also where reading failed: what was accepted is delivered or told
    print(f"{sent} message{'s' if sent != 1 else ''} sent to {arguments.topic}")
    return 0


def lines_of(file: BinaryIO, name: str) -> Iterator[bytes]:
    """The lines without their LF, each held alone in memory. Raises TooLargeError for one over the record's limit."""
    count = 0
    while line := file.readline(RECORD_BYTES_MAX + 1):
        count += 1
        if line.endswith(b"\n"):
            yield line[:-1]
        elif len(line) > RECORD_BYTES_MAX:
            raise TooLargeError(f"{name}: line {count} has more than {RECORD_BYTES_MAX} bytes, which is the most a message may have")
        else:
            yield line


def _whole(file: BinaryIO, name: str) -> bytes:
    value = file.read(RECORD_BYTES_MAX + 1)
    if len(value) > RECORD_BYTES_MAX:
        raise TooLargeError(f"{name} has more than {RECORD_BYTES_MAX} bytes, which is the most a message may have")
    return value


@contextlib.contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        with open(name, "rb") as file:
            yield file
    except OSError as error:
        raise unwritable(name, error) from None
