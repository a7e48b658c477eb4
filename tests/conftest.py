"""Fixtures that several tiers share."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from myqueue.errors import ConfigurationError
from myqueue.supervisor.ports import PortKeeper
from tests.support.long import LONG
from tests.support.order import places, scope_of, tier_of
from tests.support.removal import wait_for_removals

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell without job control starts `command &` deaf to Ctrl-C, and so would be every process whose end by Ctrl-C is tested.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Where several processes run side by side by ``--dist loadscope``: what shares nodes is a scope.

    (The groups that xdist 3.8 has itself do nothing with pytest 9.2.)
    """
    if config.getoption("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    return Scheduling(config, log)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: a variant for scripts/test long; a shorter one of its kind runs always")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave long variants to the long form. Side by side in the order of ``tests.support.order``; what that leaves open stays random."""
    if not LONG:
        left = [item for item in items if item.get_closest_marker("long")]
        items[:] = [item for item in items if not item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left)
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = places(item.nodeid for item in items)
        items.sort(key=lambda item: place[scope_of(item.nodeid)])


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    wait_for_removals()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How long the tests of each tier took, which is more than the whole where several run side by side."""
    seconds: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[tier_of(report.nodeid)] += report.duration
    if seconds:
        longest_first = sorted(seconds.items(), key=lambda one: -one[1])
        terminalreporter.write_line("seconds of tests: " + ", ".join(f"{tier} {taken:.0f}" for tier, taken in longest_first))


@pytest.fixture
def keeper() -> Iterator[PortKeeper]:
    """Picks ports that are a test's own until it ends."""
    with PortKeeper() as keeper:
        yield keeper


@pytest.fixture(scope="session")
def postgres() -> Iterator[object]:
    """One real PostgreSQL server for the whole run (a ``PostgresForTests``). Without one: a failure in CI, a skip at the desk."""
    from tests.support.postgres import postgres_for_tests  # only the tiers that need it import the drivers

    try:
        with postgres_for_tests() as server:
            yield server
    except ConfigurationError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no PostgreSQL: {error}")


@pytest.fixture
def broker_database(postgres) -> Iterator[str]:
    """The URL of a fresh broker database, migrated."""
    with postgres.database("broker") as url:
        yield url


@pytest.fixture
def manager_database(postgres) -> Iterator[str]:
    """The URL of a fresh manager database, migrated."""
    with postgres.database("manager") as url:
        yield url


@pytest.fixture
def empty_database(postgres) -> Iterator[str]:
    """The URL of a fresh database without any table."""
    with postgres.database() as url:
        yield url
