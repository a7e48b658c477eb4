"""gunicorn's gthread worker, made to answer what it cannot parse in JSON, and not to be held up by slow clients.

A connection that says nothing waits in the poller and not in a thread. A request whose head does not end in time is
cut off: gunicorn itself would wait for it for ever, in a thread.
"""

from __future__ import annotations

import json
import logging
import socket
from typing import Any

from gunicorn import util
from gunicorn.http.errors import ExpectationFailed, LimitRequestHeaders, LimitRequestLine, ParseException, UnsupportedTransferCoding
from gunicorn.workers import gthread

from ..clock import SystemClock
from ..errors import BadRequestError, InternalError
from ..protocol import wire

HEAD_SECONDS_MAX = 10.0
LINGER_SECONDS = 0.5
_FIRST_BYTE_SECONDS = 0.01  # in a thread; a client that has connected has usually sent its request already
_STATUSES: dict[type[Exception], tuple[int, str]] = {
    LimitRequestLine: (414, "URI Too Long"), LimitRequestHeaders: (431, "Request Header Fields Too Large"),
    UnsupportedTransferCoding: (501, "Not Implemented"), ExpectationFailed: (417, "Expectation Failed"),
}
_clock = SystemClock()
_log = logging.getLogger(__name__)


class FrameWorker(gthread.ThreadWorker):  # type: ignore[misc]
    """What differs from gthread is said above."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._heads: dict[Any, float] = {}  # connections whose request's head is being read, and since when

    def handle(self, conn: Any) -> Any:
        if not conn.initialized and not conn.data_ready and not conn.wait_for_data(_FIRST_BYTE_SECONDS):
            return gthread._DEFER
        self._heads[conn] = _clock.monotonic()
        try:
            return super().handle(conn)
        finally:
            self._heads.pop(conn, None)

    def handle_request(self, req: Any, conn: Any) -> Any:
        self._heads.pop(conn, None)
        return super().handle_request(req, conn)

    def set_accept_enabled(self, enabled: bool) -> None:
        """A worker that ends takes no connection any more: the kernel would go on taking them, and nobody would answer."""
        super().set_accept_enabled(enabled)
        if not self.alive:
            for listener in self.sockets:
                listener.close()

    def _cap_keepalive(self, deadline: float) -> None:
        """When a worker ends: an idle connection is kept for a request that is on its way, which takes no two seconds. One that has said
        nothing yet is such a connection too; gunicorn would wait for it as long as it may wait at all.
        """
        deadline = min(deadline, _clock.monotonic() + LINGER_SECONDS)
        super()._cap_keepalive(deadline)
        for conn in self.pending_conns:
            conn.timeout = min(conn.timeout, deadline)

    def handle_quit(self, sig: int, frame: Any) -> None:
        """As SIGTERM: gunicorn's own handler takes the thread pool's lock, which the code that it interrupts may hold."""
        self.handle_exit(sig, frame)

    def notify(self) -> None:
        """Called about once a second by the worker's main loop."""
        super().notify()
        late = _clock.monotonic() - HEAD_SECONDS_MAX
        for conn, since in list(self._heads.items()):
            if since < late:
                self._heads.pop(conn, None)
                try:
                    conn.sock.shutdown(socket.SHUT_RDWR)  # its thread reads the end
                except OSError as error:
                    _log.info("a slow client is gone already: %s", error)

    def handle_error(self, req: Any, client: Any, addr: Any, exc: Exception) -> None:
        """Before a request has a path, its face is not known: the answer carries the fields of all three."""
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
