"""gunicorn's gthread worker, answering what it cannot parse in JSON like everything else."""

from __future__ import annotations

import json
import logging
from typing import Any

from gunicorn import util
from gunicorn.http.errors import ExpectationFailed, LimitRequestHeaders, LimitRequestLine, ParseException, UnsupportedTransferCoding
from gunicorn.workers.gthread import ThreadWorker

from ..errors import BadRequestError, InternalError
from ..protocol import wire

_STATUSES: dict[type[Exception], tuple[int, str]] = {
    LimitRequestLine: (414, "URI Too Long"), LimitRequestHeaders: (431, "Request Header Fields Too Large"),
    UnsupportedTransferCoding: (501, "Not Implemented"), ExpectationFailed: (417, "Expectation Failed"),
}
_log = logging.getLogger(__name__)


class JsonErrorWorker(ThreadWorker):  # type: ignore[misc]
    """Before a request has a path, its face is not known: the answer carries the fields of all three."""

    def handle_error(self, req: Any, client: Any, addr: Any, exc: Exception) -> None:
        if isinstance(exc, ParseException):
            error: BadRequestError | InternalError = BadRequestError(f"this is not a request that can be read: {exc}"[:300])
            status, reason = _STATUSES.get(type(exc), (400, "Bad Request"))
            _log.warning("unreadable request from %s: %s", addr[0] if addr else "?", error.message)
        else:
            error, status, reason = InternalError(), 500, "Internal Server Error"
            _log.error("a request failed outside the app", exc_info=exc)
        body = json.dumps({"status": "failure", "message": error.message, "reason": error.message, **wire.error_to_json(error)}).encode()
        head = f"HTTP/1.1 {status} {reason}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        try:
            util.write_nonblock(client, head.encode() + body)
        except OSError as failure:
            _log.info("an unreadable request's sender is gone: %s", failure)
