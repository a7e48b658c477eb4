"""How the databases are connected to."""

from __future__ import annotations

from pipeline.cluster import DatabaseAddress
from pipeline.databases import Limits, libpq_uri


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
