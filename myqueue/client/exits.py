"""Clients that are still open when the process ends or forks."""

from __future__ import annotations

import atexit
import os
import threading
from typing import Protocol


class Client(Protocol):
    """What an open client can be told."""

    def at_exit(self) -> None:
        """The interpreter ends: finish within bounds, and say on stderr what could not be done."""

    def after_fork(self) -> None:
        """This is a forked child: threads and connections stayed with the parent; every further call is a clear error."""


_open: set[Client] = set()
_lock = threading.RLock()  # re-entrant: a signal handler may close what it interrupts
_is_installed = False


def opened(client: Client) -> None:
    """Watch over a client until ``closed`` is called. The hooks are put in place with the first one, not at import."""
    global _is_installed
    with _lock:
        _open.add(client)
        if not _is_installed:
            _is_installed = True
            atexit.register(_at_exit)
            os.register_at_fork(after_in_child=_after_fork)


def closed(client: Client) -> None:
    with _lock:
        _open.discard(client)


def _at_exit() -> None:
    for client in list(_open):
        client.at_exit()


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()  # the parent's may have been held
    for client in list(_open):
        client.after_fork()
    _open.clear()
