"""Works side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence


def side_by_side(works: Sequence[Callable[[], None]], timeout_seconds: float) -> None:
    """Run each in a thread of its own. Raises the first error of any; AssertionError where one does not end."""
    errors: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 (it is raised again below)
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout_seconds)
        assert not thread.is_alive(), f"a client did not end within {timeout_seconds:.0f} s"
    if errors:
        raise errors[0]
