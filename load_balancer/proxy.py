"""Passes a request on and its answer back, byte for byte, at most once unless it is a plain read."""

from __future__ import annotations

import errno
import itertools
import logging
from collections.abc import Iterable, Iterator
from typing import IO
from urllib.parse import unquote_to_bytes

from flask import Blueprint, Request, Response, g, request
from gunicorn.http.errors import ParseException
from werkzeug.exceptions import HTTPException

from myqueue.errors import (
    BadRequestError,
    MyQueueError,
    OutcomeUnknownError,
    UnavailableError,
    UnknownPartitionError,
    UnknownTopicError,
    UnreachableError,
)
from myqueue.protocol import routes
from myqueue.protocol.faces import Face, face_of
from myqueue.service import metrics
from myqueue.service.app import from_http
from myqueue.service.faces import render

from .connections import PIECE_BYTES, Answer, Connections, Patience
from .core.routing import Backend, Destination, Facts, Route, partition_of, route
from .upstreams import Upstreams

WHOLE_BYTES_MAX = 65_536  # a body up to here is held in memory: read before a backend is bothered, and sent again where that is safe
CHUNK_READ_BYTES = 4_096  # of a chunked upload: small, so that what has arrived is passed on soon
PLAIN = frozenset({"GET", "HEAD", "OPTIONS"})
HOP_BY_HOP = frozenset({"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
                        "transfer-encoding", "upgrade"})
_NOT_SENT_ON = HOP_BY_HOP | {"expect", "content-length", "x-forwarded-for", routes.REQUEST_ID.lower()}  # answered here, or written anew
_NOT_ANSWERED_ON = HOP_BY_HOP | {"server", "date", routes.REQUEST_ID.lower()}  # our own server writes them
_log = logging.getLogger(__name__)


class Proxy:
    """Sends requests where the routing says. Times are bounds on each wait for a backend."""

    def __init__(self, upstreams: Upstreams, connections: Connections, *, manager_timeout_seconds: float, broker_timeout_seconds: float) -> None:
        self._upstreams, self._connections = upstreams, connections
        self._manager_timeout_seconds, self._broker_timeout_seconds = manager_timeout_seconds, broker_timeout_seconds
        self._turns = itertools.count()

    def handle(self, target: str) -> Response:
        """Answer the current request, whose raw target is given; a failure takes the form of the face that was called."""
        facts = Facts(request.method, path_of(target))
        try:
            chosen = self._route(facts)
            g.route = chosen.destination.value
            return _relayed(self._first_answer(chosen, target))
        except HTTPException as error:
            return render(face_of(facts.path), from_http(error))
        except MyQueueError as error:
            if "component" in error.details:
                metrics.UPSTREAM_ERRORS.labels(error.details["component"]).inc()
            return render(face_of(facts.path), error)

    def _route(self, facts: Facts) -> Route:
        turn = next(self._turns)
        try:
            return route(facts, self._upstreams.view, turn=turn)
        except (UnknownTopicError, UnknownPartitionError):
            self._upstreams.refresh_topic(partition_of(facts).topic)  # it may be new
            return route(facts, self._upstreams.view, turn=turn)

    def _first_answer(self, chosen: Route, target: str) -> Answer:
        """Try the backends in turn. The next one only if the last got no byte, or if the request may be repeated."""
        to_broker = chosen.destination is Destination.LEADER
        timeout_seconds = self._broker_timeout_seconds if to_broker else self._manager_timeout_seconds
        body, framing = body_of(request)
        head = head_of(request, target, framing, self._as_written(chosen))
        client = request.environ.get("gunicorn.socket") if to_broker and chosen.repeatable and isinstance(body, bytes) else None
        failure: MyQueueError | None = None
        for backend in _attempts(chosen, repeatable=isinstance(body, bytes)):
            try:
                answer = self._connections.exchange(backend, request.method, head, body, Patience(
                    timeout_seconds, None if to_broker else lambda backend=backend: self._upstreams.is_lost(backend), client))
            except UnreachableError as error:
                self._upstreams.failed(backend, error)
                failure = error
            except OutcomeUnknownError as error:
                self._upstreams.suspect()
                if not chosen.repeatable or not isinstance(body, bytes) or error.details.get("timed_out"):
                    raise
                failure = error
            else:
                if answer.status == 503:
                    self._upstreams.suspect()  # it may no longer lead
                    if _header(answer, routes.NOT_TAKEN) and isinstance(body, bytes) and backend != chosen.backends[-1]:
                        answer.close()  # it is about to end, and has not begun with it
                        self._upstreams.failed(backend, UnavailableError(f"{backend.component} is about to end"))
                        continue
                elif not to_broker and request.method not in PLAIN:
                    self._note_index(answer)
                return answer
        assert failure is not None, "a route names one backend at least"
        raise failure

    def _as_written(self, chosen: Route) -> int | None:
        """The index that a plain read of metadata should show, so that a client reads what it has just written."""
        if chosen.destination is Destination.LEADER or not chosen.repeatable:
            return None
        if routes.MIN_INDEX in request.headers or routes.PREFER_INDEX in request.headers:
            return None
        return self._upstreams.wanted_index()

    def _note_index(self, answer: Answer) -> None:
        index = _header(answer, routes.APPLIED_INDEX)
        if index is not None and index.isdecimal():
            self._upstreams.wrote(int(index))


def make_blueprint(proxy: Proxy) -> Blueprint:
    """Takes every request but those that each node answers itself, before Flask looks for a view: its rules would rewrite paths."""
    blueprint = Blueprint("proxy", __name__)

    @blueprint.before_app_request
    def pass_on() -> Response | None:
        try:
            target = target_of(request)
        except BadRequestError as error:
            return render(Face.NATIVE, error)
        return None if path_of(target) in routes.OF_EVERY_PROCESS else proxy.handle(target)

    return blueprint


def target_of(incoming: Request) -> str:
    """The request's target as it came, from the path on. Raises BadRequestError for one that is no path (``*``, an authority)."""
    raw = str(incoming.environ["RAW_URI"])
    _, absolute, rest = raw.partition("://")
    if absolute and not raw.startswith("/"):  # the form that is sent to a proxy: the authority goes, the path stays
        raw = "/" + rest.partition("/")[2]
    if not raw.startswith("/"):
        raise BadRequestError("the request's target must be a path")
    return raw.partition("#")[0]


def path_of(target: str) -> str:
    """The path as a backend will see it."""
    return unquote_to_bytes(target.partition("?")[0].encode("latin-1")).decode("utf-8", "replace")


def head_of(incoming: Request, target: str, framing: tuple[str, str] | None, index: int | None = None) -> bytes:
    """Request line and headers as they are sent on; ``index`` is what a read should show."""
    named = _names_in([incoming.headers.get("Connection", "")]) - {"host"}
    lines = [f"{incoming.method} {target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in incoming.headers.items() if name.lower() not in _NOT_SENT_ON | named]
    if "Host" not in incoming.headers:
        lines.append("Host: myqueue")
    through = [*incoming.headers.getlist("X-Forwarded-For"), incoming.remote_addr or "unknown"]
    lines.append(f"X-Forwarded-For: {', '.join(through)}")
    lines.append(f"{routes.REQUEST_ID}: {g.request_id}")
    if index is not None:
        lines.append(f"{routes.PREFER_INDEX}: {index}")
    if framing:
        lines.append(f"{framing[0]}: {framing[1]}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def body_of(incoming: Request) -> tuple[bytes | Iterable[bytes], tuple[str, str] | None]:
    """The body to send on and the header that frames it. One that says it is too large is refused before anything is read."""
    if "chunked" in incoming.headers.get("Transfer-Encoding", "").lower():
        return _chunks(_pieces(incoming.stream, CHUNK_READ_BYTES)), ("Transfer-Encoding", "chunked")
    length = incoming.content_length
    if length is None:
        return b"", None
    pieces = _pieces(incoming.stream, PIECE_BYTES)
    return b"".join(pieces) if length <= WHOLE_BYTES_MAX else pieces, ("Content-Length", str(length))


def _pieces(stream: IO[bytes], piece_bytes: int) -> Iterator[bytes]:
    """What the client sends. A failure to read it is the client's: BadRequestError, or TooLargeError past the limit."""
    try:
        while piece := stream.read(piece_bytes):
            yield piece
    except HTTPException as error:
        raise from_http(error) from error
    except (ParseException, OSError) as error:
        raise BadRequestError("the request's body broke off or is not well framed; it was not carried out") from error


def _chunks(pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        yield b"%x\r\n%b\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


def _header(answer: Answer, name: str) -> str | None:
    return next((value for key, value in answer.headers if key.lower() == name.lower()), None)


def _names_in(values: Iterable[str]) -> set[str]:
    """The headers that a Connection header takes out: they end at this hop."""
    return {name.strip().lower() for value in values for name in value.split(",")}


def _attempts(chosen: Route, *, repeatable: bool) -> Iterable[Backend]:
    """One backend alone is tried twice for a read: its idle connection may have been closed in that very moment."""
    again = chosen.repeatable and repeatable and len(chosen.backends) == 1
    return chosen.backends * 2 if again else chosen.backends


def _relayed(answer: Answer) -> Response:
    """The answer for the client: small ones whole, so that one that breaks off is a clean error; others as they arrive."""
    named = _names_in(value for name, value in answer.headers if name.lower() == "connection")
    headers = [(name, value) for name, value in answer.headers if name.lower() not in _NOT_ANSWERED_ON | named]
    is_small = answer.length is not None and answer.length <= WHOLE_BYTES_MAX
    body = answer.read() if is_small else _passed_on(answer)
    response = Response(body, f"{answer.status} {answer.reason}", headers)
    if not any(name.lower() == "content-type" for name, _ in headers):
        del response.headers["Content-Type"]
    if not is_small:
        response.call_on_close(answer.close)
    return response


def _passed_on(answer: Answer) -> Iterator[bytes]:
    """The body as it arrives. Where it breaks off, so does the client's connection: an error of its own would be taken for a part of the answer."""
    try:
        yield from answer.pieces()
    except OutcomeUnknownError as error:
        _log.warning("an answer broke off: %s", error.message)
        metrics.UPSTREAM_ERRORS.labels(error.component).inc()
        raise BrokenPipeError(errno.EPIPE, error.message) from error
