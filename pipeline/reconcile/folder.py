"""What a reconciliation leaves in its folder."""

from __future__ import annotations

from ..results import ResultFolder

PERIODS_NAME = "periods"
RECONCILIATION = ResultFolder("reconciliation", (PERIODS_NAME,), "reconcile.html", "reconcile.json", "reconcile-staging")
