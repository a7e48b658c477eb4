"""How the databases are connected to."""

from __future__ import annotations

import psycopg2
import pytest

from myqueue.errors import UnreachableError
from pipeline.cluster import DatabaseAddress
from pipeline.databases import Database, Limits, libpq_uri


def test_the_connection_is_read_only_bounded_and_has_no_password() -> None:
    """Time-outs and read-only mode are part of every connection; the password is libpq's to find."""
    uri = libpq_uri(DatabaseAddress("10.0.0.1", 5433, "my db", "re/ader"), Limits(connect_seconds=7, statement_seconds=1.5))
    assert uri.startswith("postgresql://re%2Fader@10.0.0.1:5433/my%20db?")
    assert "connect_timeout=7" in uri
    assert "default_transaction_read_only%3Don" in uri
    assert "statement_timeout%3D1500" in uri
    assert "tcp_user_timeout=8000" in uri
    assert "password" not in uri


def test_an_ipv6_host_is_bracketed() -> None:
    """An address with colons is no port."""
    assert "@[::1]:5432/" in libpq_uri(DatabaseAddress("::1", 5432, "d", "u"), Limits())


def test_a_missing_password_says_where_to_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """libpq's own sentence tells a person nothing that they could do."""
    def refuse(_uri: str) -> None:
        raise psycopg2.OperationalError("connection failed: fe_sendauth: no password supplied\n")

    monkeypatch.setattr(psycopg2, "connect", refuse)
    with pytest.raises(UnreachableError, match="no password supplied: name the cluster's data folder by --data"), \
            Database(DatabaseAddress("h", 5432, "d", "u"), Limits()).snapshot():
        pass
