"""What every command needs that speaks to a cluster."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

from ..client.admin import AdminClient
from ..errors import BadRequestError, ConfigurationError, UnknownTopicError
from ..protocol.names import parse_time

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


def add_bootstrap(parser: argparse.ArgumentParser, *, inherited: bool = False) -> None:
    """``--bootstrap``, by default from MYQUEUE_BOOTSTRAP; ``inherited`` where the parser above has it too: given there, it counts here."""
    default = argparse.SUPPRESS if inherited else os.environ.get("MYQUEUE_BOOTSTRAP") or DEFAULT_BOOTSTRAP
    parser.add_argument("--bootstrap", metavar="HOST:PORT", default=default,
                        help=f"the balancer's address, or several with commas (MYQUEUE_BOOTSTRAP; default: {DEFAULT_BOOTSTRAP})")


def token() -> str | None:
    """The client's token comes from MYQUEUE_TOKEN only: a command line can be read by others."""
    return os.environ.get("MYQUEUE_TOKEN") or None


def admin(arguments: argparse.Namespace) -> AdminClient:
    return AdminClient(arguments.bootstrap, token=token())


def number(minimum: float, kind: type[int] | type[float] = int) -> Callable[[str], float]:
    """An argparse type: a number that is at least ``minimum``."""
    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not minimum <= value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text!r} is not a {'whole ' if kind is int else ''}number of at least {minimum}")
        return value

    return parse


def unwritable(path: str, error: OSError) -> ConfigurationError:
    """The sentence for a file that cannot be read or written."""
    return ConfigurationError(f"{path}: {error.strerror or error}")


def existing(client: AdminClient, topic: str) -> str:
    """The topic's name, once it is sure that it exists. Raises UnknownTopicError in one sentence."""
    try:
        client.describe_topic(topic)
    except UnknownTopicError:
        raise UnknownTopicError(f"there is no topic {topic!r}") from None
    return topic


def moment(text: str) -> int:
    """A time as argparse reads it, in microseconds since 1970: so many of them, or an ISO time (UTC where no zone is given)."""
    try:
        return parse_time(text)
    except BadRequestError as error:
        raise argparse.ArgumentTypeError(error.message) from None
