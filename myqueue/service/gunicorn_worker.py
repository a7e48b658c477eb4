"""gunicorn's gthread worker, made to answer what it cannot parse in JSON, and not to be held up by slow clients.

A connection waits in the poller, and not in a thread, until its request is there (``arrival``). A request that does not arrive in time is
answered with 408; an answer that nobody takes ends (``client_socket``). The main loop never waits for a client.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from gunicorn import util
from gunicorn.http.errors import ExpectationFailed, LimitRequestHeaders, LimitRequestLine, ParseException, UnsupportedTransferCoding
from gunicorn.workers import gthread

from ..clock import SystemClock
from ..errors import BadRequestError, InternalError, MyQueueError, SlowRequestError
from ..protocol import wire
from .client_socket import ClientSocket
from .limits import Limits

LINGER_SECONDS = 0.5  # of a worker that ends, for a request that is on its way
ENDING_SECONDS = 2.0  # of such a worker, for a client that sends or reads slowly
GOODBYE_SECONDS = 2.0  # for a client to close its end too; before that it may not have read its answer
YOUNG_SECONDS = 1.0  # for a connection to say something before it may be closed for another one
CLOSELY_SECONDS = 0.003  # behind an answer: so soon the next request of a caller that goes on at once is there
LOOK_SECONDS = 0.25  # between looks at what is late
_NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_NOT_THERE = {errno.EAGAIN, errno.EWOULDBLOCK, errno.ECONNABORTED}
_STATUSES: dict[type[Exception], tuple[int, str]] = {
    LimitRequestLine: (414, "URI Too Long"), LimitRequestHeaders: (431, "Request Header Fields Too Large"),
    UnsupportedTransferCoding: (501, "Not Implemented"), ExpectationFailed: (417, "Expectation Failed"),
}
_clock = SystemClock()
_log = logging.getLogger(__name__)


class FrameWorker(gthread.ThreadWorker):  # type: ignore[misc]
    """What differs from gthread is said above."""

    limits: ClassVar[Limits] = Limits()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ends_at = math.inf
        self._arriving: dict[Any, None] = {}  # connections of which a part of a request is there, the oldest first
        self._leaving: dict[Any, float] = {}  # connections that are answered and closed on this side, and until when
        self._looked_at = 0.0
        self._unserved: deque[None] = deque()  # one for each request that waits for a thread
        self._expecting = threading.BoundedSemaphore(max(1, self.cfg.threads // 4))

    # --- connections that come, wait, and go: all in the main loop ---

    def accept(self, listener: Any) -> None:
        try:
            accepted, address = listener.accept()
        except OSError as error:
            if error.errno in _NO_ROOM:
                _log.warning("no room for another connection: %s", error.strerror)
                self._make_room()
            elif error.errno not in _NOT_THERE:
                raise
            return
        self.nr_conns += 1
        conn = gthread.TConn(self.cfg, ClientSocket(accepted, self), address, listener.getsockname())
        conn.data_ready = True  # when a thread gets it
        conn.timeout = _clock.monotonic() + self.cfg.keepalive
        self.pending_conns.append(conn)
        self._watch(conn, self.on_pending_socket_readable)

    def on_pending_socket_readable(self, conn: Any, client: Any) -> None:
        self.poller.unregister(client)
        self.pending_conns.remove(conn)
        self._gather(conn)

    def on_client_socket_readable(self, conn: Any, client: Any) -> None:
        self.poller.unregister(client)
        self.keepalived_conns.remove(conn)
        self._gather(conn)

    def finish_request(self, conn: Any, fs: Any) -> None:
        """A thread is done with a connection: it waits for its next request, or is closed."""
        if fs.cancelled() or fs.exception() is not None or not fs.result():
            self._leave(conn)
            return
        conn.sock.put_back(conn.parser.unreader.take_buffered())
        conn.sock.setblocking(False)
        if not conn.sock.is_silent:
            self._hand_over(conn)  # it has sent the next request already
            return
        conn.set_timeout()
        if not self.alive:
            conn.timeout = min(conn.timeout, _clock.monotonic() + LINGER_SECONDS)
        self.keepalived_conns.append(conn)
        self._watch(conn, self.on_client_socket_readable)

    def _gather(self, conn: Any) -> None:
        if conn.sock.gather():
            self._hand_over(conn)
        else:
            self._close(conn)

    def _hand_over(self, conn: Any) -> None:
        """Give the request a thread, or wait for more of it."""
        if conn.sock.is_ready(body_bytes_max=self.wsgi.config["MAX_CONTENT_LENGTH"]):
            self.enqueue_req(conn)
            return
        self._arriving[conn] = None
        self._watch(conn, self._on_more)

    def _on_more(self, conn: Any, client: Any) -> None:
        if not conn.sock.gather():
            self._drop_arriving(conn)
            self._close(conn)
        elif conn.sock.is_ready(body_bytes_max=self.wsgi.config["MAX_CONTENT_LENGTH"]):
            self._drop_arriving(conn)
            self.enqueue_req(conn)

    def _leave(self, conn: Any) -> None:
        """Close this side, and the other one when it has closed too: closed at once, what it sent and we did not read would cost it our answer."""
        try:
            conn.sock.setblocking(False)
            conn.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._close(conn)
            return
        self._leaving[conn] = min(_clock.monotonic() + GOODBYE_SECONDS, self.ends_at)
        self._watch(conn, self._on_goodbye)

    def _on_goodbye(self, conn: Any, client: Any) -> None:
        if not conn.sock.discard():
            self._drop_leaving(conn)

    def _drop_leaving(self, conn: Any) -> None:
        self.poller.unregister(conn.sock)
        del self._leaving[conn]
        self._close(conn)

    def _drop_arriving(self, conn: Any) -> None:
        self.poller.unregister(conn.sock)
        del self._arriving[conn]

    def _watch(self, conn: Any, then: Callable[[Any, Any], None]) -> None:
        self.poller.register(conn.sock, selectors.EVENT_READ, partial(then, conn))

    def _close(self, conn: Any) -> None:
        self.nr_conns -= 1
        conn.close()

    def notify(self) -> None:
        """Called by the main loop, about once a second where nothing happens, twice a request where much does: the arbiter is told now and then."""
        if self.nr_conns >= self.worker_connections:
            self._make_room()
        now = _clock.monotonic()
        if now < self._looked_at + LOOK_SECONDS:
            return
        self._looked_at = now
        super().notify()
        for conn in [conn for conn in self._arriving if now >= min(conn.sock.deadline, self.ends_at)]:
            self._give_up(conn)
        for conn in [conn for conn, until in self._leaving.items() if now >= until]:
            self._drop_leaving(conn)

    def _give_up(self, conn: Any) -> None:
        self._drop_arriving(conn)
        self.handle_error(None, conn.sock, conn.client, SlowRequestError())
        self._leave(conn)

    def _make_room(self) -> None:
        """Close a connection that waits: the one silent or idle for longest, else the one whose request has been on its way for longest.

        Not one that has come just now: its request is about to come.
        """
        since = _clock.monotonic() + self.cfg.keepalive - YOUNG_SECONDS
        waiting = [conns[0] for conns in (self.pending_conns, self.keepalived_conns) if conns and conns[0].timeout < since]
        if waiting:
            conn = min(waiting, key=lambda conn: conn.timeout)
            (self.pending_conns if conn in self.pending_conns else self.keepalived_conns).remove(conn)
            self.poller.unregister(conn.sock)
            self._close(conn)
        elif self._arriving:
            self._give_up(next(iter(self._arriving)))

    def enqueue_req(self, conn: Any) -> None:
        self._unserved.append(None)
        super().enqueue_req(conn)

    # --- requests: in threads ---

    def handle(self, conn: Any) -> Any:
        """Answer a request, and those that follow it closely: the way back through the main loop would cost as much as a small answer.

        A thread waits so only where the request before came as closely, and only one in four does. None goes on while another request waits
        for a thread: callers that never pause would keep all threads to themselves.
        """
        self._unserved.popleft()
        while True:
            follows = conn.sock.began_at - conn.sock.answered_at <= CLOSELY_SECONDS
            goes_on = super().handle(conn)
            conn.sock.answered_at = _clock.monotonic()
            if not (goes_on and follows and self.alive and self._is_next_there(conn)):
                return goes_on

    def _is_next_there(self, conn: Any) -> bool:
        """Whether the next request of a connection is there within a moment. What is there of it otherwise is left to the main loop."""
        if self._unserved or not self._expecting.acquire(blocking=False):
            return False
        try:
            conn.sock.put_back(conn.parser.unreader.take_buffered())
            return conn.sock.becomes_ready(CLOSELY_SECONDS, body_bytes_max=self.wsgi.config["MAX_CONTENT_LENGTH"]) and not self._unserved
        finally:
            self._expecting.release()

    def _keepalive_after(self, conn: Any, keepalive: Any) -> bool:
        """Once a request is answered, a body that no view has read and that is not whole ends the connection, without a second answer."""
        if conn.sock.is_late:
            return False
        try:
            return bool(super()._keepalive_after(conn, keepalive))
        except (ParseException, SlowRequestError) as error:
            _log.info("a connection ends behind a body that is not whole: %s", error)
            return False

    # --- the end ---

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
        self.ends_at = _clock.monotonic() + ENDING_SECONDS
        deadline = min(deadline, _clock.monotonic() + LINGER_SECONDS)
        super()._cap_keepalive(deadline)
        for conn in self.pending_conns:
            conn.timeout = min(conn.timeout, deadline)

    def handle_quit(self, sig: int, frame: Any) -> None:
        """As SIGTERM: gunicorn's own handler takes the thread pool's lock, which the code that it interrupts may hold."""
        self.handle_exit(sig, frame)

    def handle_error(self, req: Any, client: Any, addr: Any, exc: Exception) -> None:
        """Before a request has a path, its face is not known: the answer carries the fields of all three."""
        error: MyQueueError
        if isinstance(exc, ParseException):
            error = BadRequestError(f"this is not a request that can be read: {exc}"[:300])
            status, reason = _STATUSES.get(type(exc), (400, "Bad Request"))
            _log.warning("unreadable request from %s: %s", addr[0] if addr else "?", error.message)
        elif isinstance(exc, SlowRequestError):
            error, status, reason = exc, exc.status, "Request Timeout"
            _log.info("slow request from %s", addr[0] if addr else "?")
        else:
            error, status, reason = InternalError(), 500, "Internal Server Error"
            _log.error("a request failed outside the app", exc_info=exc)
        body = json.dumps({"status": "failure", "message": error.message, "reason": error.message, **wire.error_to_json(error)}).encode()
        head = f"HTTP/1.1 {status} {reason}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        try:
            util.write_nonblock(client, head.encode() + body)
        except OSError as failure:
            _log.info("an unreadable request's sender is gone: %s", failure)


def bounded(limits: Limits) -> type[FrameWorker]:
    """The worker with limits of its own."""
    return type("FrameWorker", (FrameWorker,), {"limits": limits})
