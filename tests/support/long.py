"""Whether the tests run in their long form: ``scripts/test long``."""

from __future__ import annotations

import os

LONG = bool(os.environ.get("MYQUEUE_TEST_LONG"))
