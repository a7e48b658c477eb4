"""The command line's tree: a table of groups, exit codes, and how errors are printed.

A group is a module with ``add_parser(groups)``, which adds its parser to argparse's subparsers and sets a function of the
parsed arguments as ``run``; that returns the exit code. Only the group that is called is imported, so that ``--help``
and small commands are quick.

Exit codes: 0 done, 1 failed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import MyQueueError


class Group(NamedTuple):
    """A word after ``myqueue``, and the module of this package that is behind it."""

    name: str
    module: str
    help: str


GROUPS = (
    Group("cluster", "cluster", "start, watch and stop a cluster on this machine"),
    Group("demo", "demo", "start a cluster, send files through it, check every count"),
    Group("bench", "bench", "measure the SDK against a cluster of its own"),
    Group("topics", "topics", "list, create and describe topics"),
    Group("produce", "produce", "send lines or files as messages"),
    Group("consume", "consume", "write a topic's messages to standard output or a file"),
    Group("lag", "lag", "show how far a consumer is"),
    Group("brokers", "brokers", "show the brokers"),
    Group("health", "health", "show who was heard of lately; exit code 1 where a broker or manager is not alive"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, run, print what went wrong in one sentence."""
    words = list(sys.argv[1:] if argv is None else argv)
    arguments = build_parser(words).parse_args(words)
    try:
        return int(arguments.run(arguments))
    except MyQueueError as error:
        print(f"myqueue: {error.message}", file=sys.stderr)
    except KeyboardInterrupt:
        print("myqueue: interrupted", file=sys.stderr)
    except BrokenPipeError:  # the reader of our output has gone: nothing more to say
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def build_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser with every group's name and the whole of the group that the words call."""
    parser = argparse.ArgumentParser(prog="myqueue", description="A distributed log queue that persists in PostgreSQL.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    called = next((word for word in words if not word.startswith("-")), None)
    for group in GROUPS:
        if group.name == called:
            importlib.import_module(f".{group.module}", __package__).add_parser(commands)
        else:
            commands.add_parser(group.name, help=group.help)
    return parser
