"""Deleting what a test leaves behind, beside the next test.

A server's data folder is some thousand files. Where the file system gives blocks back to its device at once (``discard``), deleting them is seconds
of waiting and no work.
"""

from __future__ import annotations

import atexit
import subprocess
from pathlib import Path

REMOVAL_SECONDS = 120.0
_running: list[subprocess.Popen[bytes]] = []


def remove_later(folder: Path) -> None:
    """Begin to delete a folder that nobody uses any more, in a process of its own: a test may act as another account meanwhile."""
    # Its own session: a Ctrl-C that ends whoever waits for it leaves nothing half deleted.
    _running.append(subprocess.Popen(["rm", "-rf", "--", folder], stdin=subprocess.DEVNULL, start_new_session=True))


def wait_for_removals() -> None:
    """Until everything begun is gone. At the end of the process at the latest. Raises AssertionError where something is not."""
    ended, _running[:] = [*_running], []
    codes = [process.wait(REMOVAL_SECONDS) for process in ended]
    assert not any(codes), f"something could not be deleted: {codes}"


atexit.register(wait_for_removals)
