"""The way to the other managers: what the driver wants sent, and their answers.

Two threads for each manager: one carries entries, the other what is small and must not wait behind them (votes, rounds without
entries). A thread holds only the newest message that waits: an older one that it replaces is lost, as on a network, and
the core asks again.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable

from db.replication import AppendReply
from manager.node.snapshots import StateOrder
from manager.node.transport import Peers
from manager.raft.messages import Append, Envelope, InstallSnapshot, Reply, Request, TimeoutNow, TimeoutNowReply
from myqueue.errors import LogFaultError, MyQueueError, TooLargeError

STOP_CHECK_SECONDS = 0.5
STATE_TIMEOUT_SECONDS = 30.0  # for a manager to take a state; its rows are written in one transaction
ANSWERS_MAX = 1_000  # that wait for the driver; the oldest are lost first
_log = logging.getLogger(__name__)


class Lane:
    """One thread's messages to one manager."""

    def __init__(self, send: Callable[[Request | StateOrder], None]) -> None:
        self._send = send
        self._waiting: Request | StateOrder | None = None
        self._changed = threading.Condition()

    def put(self, request: Request | StateOrder) -> None:
        with self._changed:
            self._waiting = request
            self._changed.notify()

    def run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._waiting is not None, STOP_CHECK_SECONDS)
                request, self._waiting = self._waiting, None
            if request is not None:
                self._send(request)


class Lanes:
    """All of them, and the answers that came."""

    def __init__(self, peers: Peers, *, answered: Callable[[], None], run: Callable[[str, Callable[[threading.Event], None]], None],
                 offer: Callable[[StateOrder], InstallSnapshot | None], small_timeout_seconds: float, large_timeout_seconds: float) -> None:
        """
        Args:
            answered: called when an answer came, unless it may wait for the next round.
            run: runs a function in a thread of this name until the process stops.
            offer: what is sent for an ordered state, read when its turn has come; None where there is nothing to send any more.
        """
        self._peers, self._answered, self._run, self._offer = peers, answered, run, offer
        self._small_timeout_seconds, self._large_timeout_seconds = small_timeout_seconds, large_timeout_seconds
        self._answers: deque[tuple[int, Reply]] = deque(maxlen=ANSWERS_MAX)
        self._trouble: dict[int, str] = {}  # the last failure's code, so that each is logged once
        self._small: dict[int, Lane] = {}
        self._large: dict[int, Lane] = {}
        self.quiet = False  # nothing waits for an answer: of a round that only says that the leader lives, nobody is told

    def reach(self, node_ids: Iterable[int]) -> None:
        """Have lanes to these managers. Those of one that left stay, and idle."""
        for node_id in sorted(set(node_ids) - set(self._small)):
            self._small[node_id] = self._lane(node_id, self._small_timeout_seconds)
            self._large[node_id] = self._lane(node_id, self._large_timeout_seconds)
            self._run(f"small-{node_id}", self._small[node_id].run)
            self._run(f"large-{node_id}", self._large[node_id].run)

    def send(self, envelope: Envelope) -> None:
        """Hand a message over. One to a manager that was never a member goes nowhere."""
        request = envelope.message
        lanes = self._large if isinstance(request, Append) and request.request.entries else self._small
        if envelope.target in lanes:
            lanes[envelope.target].put(request)  # type: ignore[arg-type]

    def send_state(self, order: StateOrder) -> None:
        """Have a manager sent the state of this one. It goes the way of the entries, which wait for it anyway."""
        if order.target in self._large:
            self._large[order.target].put(order)

    def take(self) -> list[tuple[int, Reply]]:
        """The answers that came since the last time: (who, what)."""
        taken = []
        while self._answers:
            taken.append(self._answers.popleft())
        return taken

    def _lane(self, node_id: int, timeout_seconds: float) -> Lane:
        return Lane(lambda request: self._ask(node_id, request, timeout_seconds))

    def _ask(self, node_id: int, waiting: Request | StateOrder, timeout_seconds: float) -> None:
        try:
            request = self._offer(waiting) if isinstance(waiting, StateOrder) else waiting
            if request is None:
                return
            if isinstance(request, InstallSnapshot):
                timeout_seconds = STATE_TIMEOUT_SECONDS
            reply = self._peers.ask(node_id, request, timeout_seconds=timeout_seconds)
        except MyQueueError as error:
            if self._trouble.get(node_id) != error.code:
                level = logging.CRITICAL if isinstance(error, (LogFaultError, TooLargeError)) else logging.WARNING
                _log.log(level, "manager %d: %s", node_id, error.message, extra={"code": error.code})
            self._trouble[node_id] = error.code
            if isinstance(waiting, TimeoutNow):
                self._tell(node_id, TimeoutNowReply(waiting.term, taken=False))  # perhaps it was: then another leader shows itself
            return
        if self._trouble.pop(node_id, None):
            _log.info("manager %d answers again", node_id)
        self._tell(node_id, reply, is_plain=isinstance(request, Append) and not request.request.entries and isinstance(reply, AppendReply)
                   and reply.refusal is None)

    def _tell(self, node_id: int, reply: Reply, *, is_plain: bool = False) -> None:
        self._answers.append((node_id, reply))
        if not (is_plain and self.quiet):
            self._answered()
