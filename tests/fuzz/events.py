"""PURE. What a stream of Server-Sent Events must be, as far as it was read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Check = Callable[[str, Any], list[str]]  # what is wrong with a value that must be a component of the document
_OPENING = re.compile(rb": [^\n]+/\d+ from offset (\d+)(?:\nid: (-?\d+))?")


@dataclass(slots=True)
class _Event:
    name: str = "message"
    id: str = ""
    data: list[str] = field(default_factory=list)


def broken(body: bytes, *, is_open: bool, begin: int | None, check: Check) -> list[str]:
    """What is wrong, in sentences.

    Args:
        is_open: its reader has gone, and its last event may be cut off.
        begin: the offset that was asked for, where it was a number.
    """
    opening, *blocks = body.split(b"\n\n")
    rest = blocks.pop() if blocks else opening
    if rest and not is_open:
        return [f"the stream ends within an event: {rest[-100:]!r}"]
    found = _OPENING.fullmatch(opening)
    if found is None:
        return [f"the stream begins with {opening[:100]!r}"]
    first = int(found[1])
    if begin not in (None, first):
        return [f"it begins at offset {first}, not at {begin}"]
    if found[2] is not None and int(found[2]) != first - 1:
        return [f"it begins at offset {first} and says that it is resumed behind {int(found[2])}"]
    return list(_wrong(blocks, first, is_open, check))


def _wrong(blocks: list[bytes], offset: int, is_open: bool, check: Check) -> Iterator[str]:
    has_failed = False
    for block in blocks:
        event = _parsed(block)
        if isinstance(event, str):
            yield event
        elif event is not None:
            if has_failed:
                yield "an event comes behind the error"
            has_failed = event.name == "error"
            yield from _of_an_error(event, check) if has_failed else _of_a_message(event, offset, check)
            offset += 1
    if has_failed and is_open:
        yield "it goes on after an error"


def _of_an_error(event: _Event, check: Check) -> list[str]:
    value = _value(event)
    return check("Error", value) if value is not None else ["an error is not JSON"]


def _of_a_message(event: _Event, offset: int, check: Check) -> list[str]:
    value = _value(event)
    if event.name != "message" or value is None:
        return [f"an event named {event.name!r} that is no message"]
    if wrong := check("Message", value):
        return wrong
    told = event.id, value["offset"]
    return [] if told == (str(offset), offset) else [f"the message at {told[1]} has the id {told[0]}, and {offset} is due"]


def _parsed(block: bytes) -> _Event | str | None:
    """None for comments alone; a sentence where it is no event."""
    event = _Event()
    for line in block.decode("utf-8", "replace").split("\n"):
        name, colon, value = line.partition(":")
        value = value.removeprefix(" ")
        if colon and name == "id":
            event.id = value
        elif colon and name == "event":
            event.name = value
        elif colon and name == "data":
            event.data.append(value)
        elif not line.startswith(":"):
            return f"a line that is no field: {line[:100]!r}"
    return event if event.data else None


def _value(event: _Event) -> Any:
    try:
        return json.loads("\n".join(event.data))
    except ValueError:
        return None
