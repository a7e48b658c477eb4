"""What a failing test's nodes said last goes into its report: their logs go with the cluster."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from myqueue.supervisor import Cluster

LINES = 25  # of each node
LINE_CHARACTERS = 300


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for value in getattr(item, "funcargs", {}).values():
            if isinstance(value, Cluster):
                report.sections.append(("what the nodes said last", _last_words(value)))
    return report


def _last_words(cluster: Cluster) -> str:
    logs = sorted(cluster.folder.logs.glob("*.log"))
    tails = {log.stem: log.read_text(errors="replace").splitlines()[-LINES:] for log in logs}
    return "\n".join(f"{name}: {line[:LINE_CHARACTERS]}" for name, lines in tails.items() for line in lines)
