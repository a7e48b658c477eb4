"""Files that are there whole or not at all, also after a power cut; and a folder that one run at a time works in."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from myqueue.errors import ConflictError

LOCK_NAME = ".lock"


def write_text(text: str, path: Path) -> None:
    """On disk when this returns. Cut off before, the file is what it was."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    sync(partial)
    partial.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """A file's content, or which names a folder holds, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Work in a folder as nobody else does meanwhile; the kernel gives it free however the process ends.

    Raises:
        ConflictError: another run works in it.
    """
    with open(folder / LOCK_NAME, "a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConflictError(f"another run works in {folder}") from None
        yield
