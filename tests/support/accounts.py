"""Running a piece of a test without root's powers."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def as_ordinary_user() -> Iterator[None]:
    """Root gives its rights away for the block (effective user ``nobody``); anybody else stays who they are."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
