"""Roles and databases of a cluster on a real server."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

from db.engine import make_engine, parse_url
from db.migrate import migrate
from db.provision import Names, create, drop
from myqueue.errors import UnavailableError

PASSWORDS = {"owner_password": "owner's own", "reader_password": "reader's own"}


@pytest.fixture
def names(postgres) -> Iterator[Names]:
    names = Names(f"t{secrets.token_hex(4)}", ("broker-1", "manager-1"))
    yield names
    drop(postgres.admin_url, names)


def url_of(admin_url: str, *, role: str, password: str, database: str) -> str:
    url = parse_url(admin_url).set(drivername="postgresql", username=role, password=password, database=database)
    return url.render_as_string(hide_password=False)


def run(url: str, statement: str) -> list[tuple]:
    with closing(psycopg2.connect(url, connect_timeout=5)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else []


def test_the_reader_reads_present_and_future_tables_and_writes_none(postgres, names: Names):
    """Tables and functions that the owner makes later are readable too; nothing can be written, not even with the read-only default lifted."""
    create(postgres.admin_url, names, **PASSWORDS)
    owner = url_of(postgres.admin_url, role=names.owner, password=PASSWORDS["owner_password"], database=names.database("broker-1"))
    reader = url_of(postgres.admin_url, role=names.reader, password=PASSWORDS["reader_password"], database=names.database("broker-1"))
    engine = make_engine(owner, application_name="tests", pool_size=1)
    migrate(engine, "broker")
    engine.dispose()
    run(owner, "SELECT create_segment(1)")
    assert run(reader, "SELECT count(*) FROM log_segment_1") == [(0,)]
    assert run(reader, "SELECT count(*) FROM messages") == [(0,)]
    assert run(reader, "SELECT count(*) FROM messages_between(1, 0, 0, 10)") == [(0,)]
    with pytest.raises(psycopg2.errors.ReadOnlySqlTransaction):
        run(reader, "DELETE FROM topic")
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        run(reader, "SET default_transaction_read_only = off; SET transaction_read_only = off; DELETE FROM topic")
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        run(reader, "SET transaction_read_only = off; CREATE TABLE mine (id int)")


def test_repeating_it_changes_passwords_and_keeps_data(postgres, names: Names):
    """A second call is no error, keeps what is stored and sets the passwords it was given."""
    create(postgres.admin_url, names, **PASSWORDS)
    database = names.database("manager-1")
    run(url_of(postgres.admin_url, role=names.owner, password=PASSWORDS["owner_password"], database=database), "CREATE TABLE kept AS SELECT 1 AS id")
    create(postgres.admin_url, names, owner_password="another", reader_password=PASSWORDS["reader_password"])
    assert run(url_of(postgres.admin_url, role=names.owner, password="another", database=database), "SELECT id FROM kept") == [(1,)]
    with pytest.raises(psycopg2.OperationalError, match="authentication failed"):
        run(url_of(postgres.admin_url, role=names.owner, password=PASSWORDS["owner_password"], database=database), "SELECT 1")


def test_others_cannot_enter_a_node_database(postgres, names: Names):
    """Being able to log in to the server is not enough: PUBLIC may not connect."""
    create(postgres.admin_url, names, **PASSWORDS)
    other = Names(names.prefix + "x", ("broker-1",))
    try:
        create(postgres.admin_url, other, **PASSWORDS)
        with pytest.raises(psycopg2.OperationalError, match="permission denied for database"):
            run(url_of(postgres.admin_url, role=other.reader, password=PASSWORDS["reader_password"], database=names.database("broker-1")), "SELECT 1")
    finally:
        drop(postgres.admin_url, other)


def test_a_role_that_may_create_is_enough(postgres, names: Names):
    """A server of one's own needs no superuser: CREATEDB and CREATEROLE do."""
    admin = f"admin_{names.prefix}"
    run(postgres.admin_url, f"CREATE ROLE {admin} LOGIN CREATEDB CREATEROLE PASSWORD 'x'")
    url = url_of(postgres.admin_url, role=admin, password="x", database="postgres")
    try:
        create(url, names, **PASSWORDS)
        create(url, names, **PASSWORDS)
        drop(url, names)
        assert run(postgres.admin_url, f"SELECT count(*) FROM pg_database WHERE datname LIKE '{names.prefix}%'") == [(0,)]
    finally:
        drop(postgres.admin_url, names)
        run(postgres.admin_url, f"DROP ROLE {admin}")


def test_no_server_is_one_sentence(names: Names):
    """The sentence names the address and never the password."""
    with pytest.raises(UnavailableError, match=r"the database server at 127.0.0.1:1 does not answer") as caught:
        create("postgresql://me:secret-word@127.0.0.1:1/postgres", names, **PASSWORDS)
    assert "secret-word" not in caught.value.message
