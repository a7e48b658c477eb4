"""The command line's tree: a table of groups, exit codes, and how errors are printed.

A group is a module with ``add_parser(groups)``, which adds its parser to argparse's subparsers and sets a function of the
parsed arguments as ``run``; that returns the exit code. Only the group that is called is imported, so that ``--help``
and small commands are quick.

Exit codes: 0 done, 1 failed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import MyQueueError
from .interrupts import kept_interrupts


class Group(NamedTuple):
    """A word after ``myqueue``, and the module of this package that is behind it."""

    name: str
    module: str
    help: str


GROUPS = (
    Group("cluster", "cluster", "start, watch and stop a cluster on this machine"),
    Group("demo", "demo", "start a cluster, send files through it, check every count"),
    Group("topics", "topics", "list, create, describe, extend and recover topics"),
    Group("produce", "produce", "send lines or files as messages"),
    Group("consume", "consume", "write a topic's messages to standard output or a file"),
    Group("search", "search", "find messages by key and by time, in all partitions"),
    Group("lag", "lag", "show how far a consumer is"),
    Group("groups", "groups", "show consumer groups, and set or forget where they stand"),
    Group("brokers", "brokers", "show, add, drain and remove brokers"),
    Group("managers", "managers", "show, add and remove managers"),
    Group("audit", "audit", "check everything that is stored; exit codes 0 clean, 1 findings, 2 incomplete, 3 usage"),
    Group("health", "health", "show who was heard of lately, and partitions in trouble; exit code 1 where something is not well"),
)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, run, print what went wrong in one sentence."""
    _open_closed_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    arguments = _parse(words)
    try:
        with kept_interrupts():
            code = int(arguments.run(arguments))
        sys.stdout.flush()  # a full disk is told here, not by the interpreter as it ends
        return code
    except MyQueueError as error:
        print(f"myqueue: {error.message}", file=sys.stderr)
    except KeyboardInterrupt:
        print("myqueue: interrupted", file=sys.stderr)
    except BrokenPipeError:  # the reader of our output has gone: nothing more to say
        _discard_output()
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        print(f"myqueue: the output could not be written: {error.strerror}", file=sys.stderr)
        _discard_output()
    return 1


def _parse(words: Sequence[str]) -> argparse.Namespace:
    """The arguments. argparse gives up on files that come after an option (``produce TOPIC --whole FILE``): they are added here."""
    parser = build_parser(words)
    arguments, rest = parser.parse_known_args(words)
    if rest and (not hasattr(arguments, "files") or any(word.startswith("-") and word != "-" for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        arguments.files = [*arguments.files, *rest]
    return arguments


def _open_closed_streams() -> None:
    """A standard stream that the caller closed (``>&-``) is an empty one: Python has None there, which nothing can use."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (for as long as the process lives)


def _discard_output() -> None:
    """What is still buffered for a reader that is gone must not be tried again at exit."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
