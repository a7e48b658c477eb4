"""Reading database URLs."""

from __future__ import annotations

import pytest

from db.engine import connect_arguments, libpq_url, parse_url
from myqueue.errors import ConfigurationError


@pytest.mark.parametrize("spelling", ["postgres", "postgresql", "postgresql+psycopg2", "postgresql+asyncpg"])
def test_every_spelling_gives_our_driver(spelling: str):
    """People and tools write a PostgreSQL URL in several ways; all mean the same."""
    url = parse_url(f"{spelling}://me:p%40ss@host:5433/queue")
    assert (url.drivername, url.host, url.port, url.database, url.password) == ("postgresql+psycopg2", "host", 5433, "queue", "p@ss")
    assert libpq_url(f"{spelling}://me:p%40ss@host:5433/queue") == "postgresql://me:p%40ss@host:5433/queue"


@pytest.mark.parametrize(("url", "sentence"), [
    ("mysql://me:secret@host/queue", "is for mysql"),
    ("postgresql://me:secret@host", "names no database"),
    ("me:secret@host", "cannot be read"),
    ("postgresql://me:secret@host:port/queue", "cannot be read"),
])
def test_a_bad_url_is_said_without_showing_it(url: str, sentence: str):
    """The message tells what is wrong and never holds the password."""
    with pytest.raises(ConfigurationError, match=sentence) as caught:
        parse_url(url)
    assert "secret" not in caught.value.message


def test_nothing_waits_without_a_limit():
    """Connecting, a cut network, a statement, a lock and an idle transaction: each has its limit."""
    arguments = connect_arguments(application_name="x", statement_timeout_seconds=2.5)
    assert arguments["connect_timeout"] > 0 and arguments["tcp_user_timeout"] > 0
    assert arguments["options"] == "-c statement_timeout=2500 -c lock_timeout=5000 -c idle_in_transaction_session_timeout=5000"
