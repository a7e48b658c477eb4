"""Fixtures that several tiers share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from myqueue.errors import ConfigurationError

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell without job control starts `command &` deaf to Ctrl-C, and so would be every process whose end by Ctrl-C is tested.
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
