"""A partition's records as Server-Sent Events: ``curl -N``, and a browser's ``EventSource``.

An event is a message: its ``id`` is the offset, its ``data`` the message in JSON. Everything wrong with the request is an ordinary answer,
before the first byte; what goes wrong later is an event named ``error`` with the error's envelope, and the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any, TypeVar

from flask import Request, Response, request

from broker.service import BrokerService
from db.log_store import Slice
from myqueue.errors import BadRequestError, MyQueueError, UnknownTopicError
from myqueue.protocol import routes, wire
from myqueue.protocol.batch import messages_of
from myqueue.protocol.names import parse_integer
from myqueue.protocol.types import Message, PartitionId
from myqueue.service.client_socket import hung_up_by

from . import bodies

EVENTS_TYPE = "text/event-stream"
LAST_EVENT_ID = "Last-Event-ID"
PIECE_BYTES = 16_384  # events that are there already leave together
KEEP_ALIVE = b": nothing new\n\n"
T = TypeVar("T")
On = Callable[[str, str, Callable[[PartitionId], T]], T]


def is_wanted(incoming: Request) -> bool:
    return EVENTS_TYPE in incoming.headers.get("Accept", "").lower()


def answer(topic: str, partition: str, service: BrokerService, on: On[Any]) -> Response:
    """The answer to the current request: a stream that has begun, and holds a place among the reads that wait until it is closed.

    Args:
        on: finds the partition by its name and explains why it is not here.

    Raises:
        NotLeaderError, OffsetOutOfRangeError, OverloadedError and what ``on`` raises.
    """
    wanted = first_offset(request)
    found, begin, epoch = on(topic, partition, lambda found: (found, *service.reads.begin_stream(found, wanted)))
    response = Response(content_type=EVENTS_TYPE)
    response.headers.update({"Cache-Control": "no-store", routes.EPOCH: str(epoch)})
    response.headers["X-Accel-Buffering"] = "no"  # an nginx on the way holds nothing back
    if request.method == "HEAD":
        return response
    with ExitStack() as place:
        place.enter_context(service.reads.waiting())
        slices = service.reads.follow(found, begin, epoch, is_gone=hung_up_by(request.environ))
        response.call_on_close(place.pop_all().close)
    first = opening(topic, found.partition, begin, resumable=wanted == "latest")
    response.response = _pieces(first, topic, found, begin, slices, lambda error: explained(error, topic, found, service, on))
    return response


def first_offset(incoming: Request) -> int | str:
    """Where to begin: behind the last event that the client has, else at ``offset``, as in a read. Raises BadRequestError."""
    if "until_offset" in incoming.args:
        raise BadRequestError("a stream has no until_offset: it goes on until its client hangs up", argument="until_offset")
    given = incoming.headers.get(LAST_EVENT_ID, "")
    return parse_integer(given, name=LAST_EVENT_ID, minimum=-1) + 1 if given else bodies.read_arguments(incoming.args)[0]


def explained(error: MyQueueError, topic: str, found: PartitionId, service: BrokerService, on: On[Any]) -> MyQueueError:
    """What to say of an error in mid-stream: where the partition is not here any more, why."""

    def check(now: PartitionId) -> MyQueueError:
        if now != found:
            return UnknownTopicError("the topic was deleted, and one of that name was made anew", topic=topic)
        service.standing.head(now)
        return error

    try:
        return on(topic, str(found.partition), check)  # type: ignore[no-any-return]
    except MyQueueError as why:
        return why


def _pieces(first: bytes, topic: str, found: PartitionId, begin: int, slices: Iterator[Slice | None],
            explain: Callable[[MyQueueError], MyQueueError]) -> Iterator[bytes]:
    yield first
    try:
        for piece in slices:
            if piece is None:
                yield KEEP_ALIVE
            else:
                messages = messages_of(piece.body, topic=topic, partition=found.partition, from_offset=begin)
                yield from joined(event(message) for message in messages)
    except MyQueueError as error:
        yield error_event(explain(error))


def opening(topic: str, partition: int, begin: int, *, resumable: bool) -> bytes:
    """What is sent at once: that the stream has begun and where; ``resumable`` has a client that loses it before a message has come resume there."""
    return f": {topic}/{partition} from offset {begin}\n{f'id: {begin - 1}{chr(10)}' if resumable else ''}\n".encode()


def event(message: Message) -> bytes:
    """One message; JSON has no line break, so the data are one line."""
    return f"id: {message.offset}\ndata: {_json(wire.message_to_json(message))}\n\n".encode()


def error_event(error: MyQueueError) -> bytes:
    return f"event: error\ndata: {_json(wire.error_to_json(error))}\n\n".encode()


def joined(events: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of about ``PIECE_BYTES``, whole events each."""
    piece, size = [], 0
    for one in events:
        piece.append(one)
        size += len(one)
        if size >= PIECE_BYTES:
            yield b"".join(piece)
            piece, size = [], 0
    if piece:
        yield b"".join(piece)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
