"""A follower's side of the log: takes appends, and lets the others of this manager know."""

from __future__ import annotations

from db.replication import AppendReply, AppendRequest
from manager.node import signals as sig
from manager.node.signals import Signals
from manager.node.wal import Wal


class Follower:
    """Any worker process may take an append; the row lock orders them."""

    def __init__(self, wal: Wal, signals: Signals) -> None:
        self._wal, self._signals = wal, signals

    def append(self, request: AppendRequest) -> AppendReply:
        """When this returns, what the answer says is on disk.

        Raises:
            LogFaultError: the request contradicts what was agreed; nothing was written.
        """
        reply, commit_rose = self._wal.append(request)
        if reply.epoch == request.epoch:
            self._signals.give(sig.LEADER)
        if commit_rose:
            self._signals.give(sig.COMMITTED)
        return reply
