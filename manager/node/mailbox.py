"""Membership changes that any process of a manager asks for, and the driver decides on."""

from __future__ import annotations

from typing import Any

from db.member_requests import MemberRequest, MemberRequestStore
from manager.node import signals as sig
from manager.node.signals import Signals
from manager.raft.node import Node
from manager.raft.state import Held
from myqueue.clock import Clock
from myqueue.errors import MyQueueError, OutcomeUnknownError
from myqueue.protocol import wire


class Mailbox:
    """The requests' way to the driver, and the answers' way back."""

    def __init__(self, store: MemberRequestStore, signals: Signals, clock: Clock) -> None:
        self._store, self._signals, self._clock = store, signals, clock
        self._seen = -1
        self._answers: dict[str, dict[str, Any]] = {}

    # --- any process ---

    def ask(self, command: dict[str, Any], *, timeout_seconds: float) -> int:
        """Have the driver put a member command into the log; the index at which it is, on this disk and not committed yet.

        Raises:
            NotLeaderError, RefusedError: nothing was stored.
            OutcomeUnknownError: the driver has not answered in time.
        """
        end = self._clock.monotonic() + timeout_seconds
        request_id = self._store.put(command)
        self._signals.give(sig.MEMBER, sig.DRIVE)
        try:
            while True:
                stamp = self._signals.stamp(sig.MEMBER_ANSWERED)
                answer = self._store.look(request_id)
                if answer is not None:
                    break
                left = end - self._clock.monotonic()
                if left <= 0:
                    raise OutcomeUnknownError("the membership change was not decided in time; look at the members before asking again")
                self._signals.wait(sig.MEMBER_ANSWERED, stamp, left)
        finally:
            self._store.remove(request_id)
        if "error" in answer:
            raise wire.error_from_json(answer, 409)
        return answer["index"]

    # --- the driver ---

    def taken(self) -> list[MemberRequest]:
        """What waits to be decided; asks the database only if somebody has asked since the last time."""
        stamp = self._signals.stamp(sig.MEMBER)
        if stamp == self._seen:
            return []
        waiting = self._store.pending()
        self._seen = stamp
        return waiting

    def decide(self, node: Node, held: Held, request: MemberRequest) -> None:
        """A step of the driver. The answer is kept until the step is on disk."""
        try:
            node.change_member(held, request.command, now=self._clock.monotonic())
            self._answers[request.request_id] = {"index": held.log.end + 1}
        except MyQueueError as error:
            self._answers[request.request_id] = wire.error_to_json(error)

    def send_answers(self) -> None:
        """After the commit."""
        answers, self._answers = self._answers, {}
        for request_id, answer in answers.items():
            self._store.answer(request_id, answer)
        if answers:
            self._signals.give(sig.MEMBER_ANSWERED)

    def forget(self) -> None:
        """What was decided did not get to the disk, or nobody knows: whoever asked finds out by looking."""
        self._answers = {}
