"""Deleting what a test leaves behind, beside the next test.

A server's data folder is some thousand files. Where the file system gives blocks back to its device at once (``discard``), deleting them is seconds
of waiting and no work.
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

REMOVAL_SECONDS = 120.0
_running: list[threading.Thread] = []


def remove_later(folder: Path) -> None:
    """Begin to delete a folder that nobody uses any more. The process does not end before it is gone; a failure ends the thread with its error."""
    thread = threading.Thread(target=shutil.rmtree, args=(folder,), name=f"removing {folder}")
    _running.append(thread)
    thread.start()


def wait_for_removals() -> None:
    """Until everything begun is gone."""
    while _running:
        thread = _running.pop()
        thread.join(REMOVAL_SECONDS)
        assert not thread.is_alive(), f"{thread.name} did not end within {REMOVAL_SECONDS:.0f} s"
