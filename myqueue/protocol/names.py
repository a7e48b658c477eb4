"""What a topic may be called, and how numbers and times from outside are read."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from ..errors import BadRequestError, InvalidNameError

TOPIC_NAME_MAX = 249  # Kafka's rule, so that names survive a move in either direction
TOPIC_PATTERN = r"^(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$"  # the same as check_topic_name, for schemas
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
TOPIC_RULE = "a topic name is 1 to 249 of A-Z a-z 0-9 . _ - and neither . nor .."
INT64_MAX = 2**63 - 1
_DECIMAL = re.compile(r"-?[0-9]{1,19}", re.ASCII)


def check_topic_name(name: object) -> str:
    """The name itself, or InvalidNameError with the rule."""
    return _checked(name, TOPIC_RULE)


def check_group_name(name: object) -> str:
    """The name itself, or InvalidNameError: a consumer group is named by the same rule as a topic."""
    return _checked(name, TOPIC_RULE.replace("topic", "group"), argument="group")


def _checked(name: object, rule: str, **details: str) -> str:
    if not isinstance(name, str):
        raise InvalidNameError(f"a name must be a string: {rule}", **details)
    if not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
        raise InvalidNameError(f"{name[:80]!r} is not allowed: {rule}", **details)
    return name


def topic_name_from(text: str) -> str:
    """A legal topic name made from any text: what a name may not hold becomes ``_``."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", text, flags=re.ASCII)[:TOPIC_NAME_MAX]
    return "_" * max(1, len(name)) if name in ("", ".", "..") else name


def parse_integer(value: object, *, name: str, minimum: int = 0, maximum: int = INT64_MAX) -> int:
    """A whole number or its decimal string form; a boolean, a float, an empty string or one out of bounds is refused.

    Raises:
        BadRequestError: names the argument and the bounds.
    """
    if isinstance(value, str) and _DECIMAL.fullmatch(value.strip()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRequestError(f"{name} must be a whole number, not {str(value)[:40]!r}", argument=name)
    if not minimum <= value <= maximum:
        raise BadRequestError(f"{name} must be from {minimum} to {maximum}, not {value}", argument=name)
    return value


def parse_time(text: str) -> int:
    """Microseconds since 1970: so many of them, or an ISO time (UTC where no zone is given); what lies before 1970 is 0. Raises BadRequestError."""
    if text.isascii() and text.isdecimal():
        return parse_integer(text, name="a time")
    try:
        time = datetime.fromisoformat(text)
        time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        return max(0, (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1))
    except ValueError:
        raise BadRequestError(f"{text!r} is neither microseconds since 1970 nor a time like 2026-03-01T12:00:00Z") from None
