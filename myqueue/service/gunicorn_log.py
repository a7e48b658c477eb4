"""gunicorn's own messages go through our logging, so that every line of a node is JSON."""

from __future__ import annotations

import logging
from typing import Any

from gunicorn.glogging import Logger


class QuietLogger(Logger):  # type: ignore[misc]
    def setup(self, cfg: Any) -> None:
        self.error_log.handlers.clear()
        self.error_log.propagate = True
        self.error_log.setLevel(logging.WARNING)
        self.access_log.handlers.clear()
