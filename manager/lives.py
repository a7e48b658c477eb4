"""The life numbers of the managers, as one worker process hears of them: kept in memory, written once a second, told with the heartbeats."""

from __future__ import annotations

import threading

from manager.node.wal import Wal
from manager.raft.life import LifeSign, Seen, highest, shown_by


class Lives:
    """Safe to call from any thread; noting a sign costs no I/O."""

    def __init__(self, wal: Wal) -> None:
        self._wal = wal
        self._lock = threading.Lock()
        self._shown: Seen = {}
        self._sign: LifeSign | None = None

    def note(self, sign: LifeSign) -> None:
        """Another manager's sign of life. It is acknowledged by a later sign of ours, when it is on disk."""
        with self._lock:
            self._shown = highest(self._shown, shown_by(sign))

    def sign(self) -> LifeSign | None:
        """What this manager may say of itself; None before the first turn."""
        return self._sign

    def turn(self) -> None:
        """Write what was shown and raise the own number where others have it; once a second."""
        with self._lock:
            shown, self._shown = self._shown, {}
        try:
            self._sign = self._wal.live(shown)
        except BaseException:
            with self._lock:
                self._shown = highest(self._shown, shown)
            raise
