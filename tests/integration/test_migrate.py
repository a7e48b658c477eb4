"""Migrations on a real database."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg2
import pytest
import sqlalchemy

from db.engine import check_durable, make_engine
from db.migrate import FOLDER, migrate, status
from myqueue.errors import ConfigurationError


@pytest.fixture
def engine(empty_database: str) -> Iterator[sqlalchemy.Engine]:
    engine = make_engine(empty_database, application_name="tests")
    yield engine
    engine.dispose()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the real migrations that a test may change."""
    return Path(shutil.copytree(FOLDER, tmp_path / "migrations"))


def test_a_second_run_applies_nothing(engine: sqlalchemy.Engine):
    """Everything is applied once; then there is nothing to do."""
    first = migrate(engine, "broker")
    assert first[0] == 1
    assert migrate(engine, "broker") == []
    applied, todo = status(engine, "broker")
    assert ([one.version for one in applied], todo) == (first, [])


def test_segments_that_are_there_take_the_kinds_of_a_later_version(engine: sqlalchemy.Engine, folder: Path):
    """The rules on entries are widened on every segment: those made before, and those made after."""
    later = [file.rename(folder / file.name) for file in sorted((folder / "broker").glob("*.sql")) if file.name >= "0003"]
    migrate(engine, "broker", folder=folder)
    insert = """INSERT INTO log_segment_{} (topic_id, partition, lsn, epoch, kind, base_offset, record_count, append_time, producer_id,
                producer_epoch, producer_seq, request_index, request_count, chain, body)
                VALUES (1, 0, 0, 1, {}, 0, 0, 0, -1, -1, -1, 0, 1, sha256(''), 'x')"""
    with engine.begin() as connection:
        connection.exec_driver_sql("SELECT create_segment(1)")
    with pytest.raises(sqlalchemy.exc.IntegrityError), engine.begin() as connection:
        connection.exec_driver_sql(insert.format(1, 3))
    for file in later:
        file.rename(folder / "broker" / file.name)
    assert migrate(engine, "broker", folder=folder)[0] == 3
    with engine.begin() as connection:
        connection.exec_driver_sql("SELECT create_segment(1)")
        for segment in (1, 2):
            connection.exec_driver_sql(insert.format(segment, 3))
    for kind in (0, 4):
        with pytest.raises(sqlalchemy.exc.IntegrityError), engine.begin() as connection:
            connection.exec_driver_sql(insert.format(2, kind).replace("(1, 0, 0", "(1, 0, 5"))


def test_status_changes_nothing(engine: sqlalchemy.Engine):
    """Asking an empty database what there is to do leaves it empty."""
    applied, todo = status(engine, "manager")
    assert applied == [] and todo[0].version == 1
    assert sqlalchemy.inspect(engine).get_table_names() == []


def test_workers_that_start_at_once_migrate_once(empty_database: str):
    """Four workers at once: one applies each migration, the others find it done."""
    results: list[list[int]] = []
    start = threading.Barrier(4)

    def work() -> None:
        engine = make_engine(empty_database, application_name="tests", pool_size=1)
        start.wait(10)
        try:
            results.append(migrate(engine, "broker"))
        finally:
            engine.dispose()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(results) == 4
    assert sorted(version for result in results for version in result) == list(range(1, max(map(max, filter(None, results))) + 1))


def test_a_newer_database_is_refused(engine: sqlalchemy.Engine, folder: Path):
    """A program must not touch a database that a newer one has changed."""
    later = len(list((folder / "broker").iterdir())) + 1
    (folder / "broker" / f"{later:04}_later.sql").write_text("CREATE TABLE later (id int)")
    migrate(engine, "broker", folder=folder)
    with pytest.raises(ConfigurationError, match=f"the database is at version {later}, this program knows versions up to {later - 1}"):
        migrate(engine, "broker")


def test_a_changed_file_is_refused(engine: sqlalchemy.Engine, folder: Path):
    """What was applied is history: a changed file is named."""
    migrate(engine, "manager")
    file = sorted((folder / "manager").iterdir())[0]
    file.write_text(file.read_text() + "-- changed\n")
    with pytest.raises(ConfigurationError, match=f"{file.name} has changed since it was applied"):
        migrate(engine, "manager", folder=folder)


def test_another_kind_is_refused(engine: sqlalchemy.Engine):
    """A manager does not take a broker's database."""
    migrate(engine, "broker")
    with pytest.raises(ConfigurationError, match="a database of another kind"):
        migrate(engine, "manager")


def test_a_failing_migration_leaves_no_trace(engine: sqlalchemy.Engine, folder: Path):
    """A migration is all or nothing, the ones before it stay, and the lock is free afterwards."""
    count = len(list((folder / "broker").iterdir()))
    (folder / "broker" / f"{count + 1:04}_bad.sql").write_text("CREATE TABLE half (id int); SELECT 1 / 0")
    with pytest.raises(psycopg2.errors.DivisionByZero):
        migrate(engine, "broker", folder=folder)
    assert not sqlalchemy.inspect(engine).has_table("half")
    applied, _ = status(engine, "broker")
    assert len(applied) == count
    assert migrate(engine, "broker") == []


def test_an_undurable_database_is_refused(empty_database: str):
    """A role or database that switches synchronous_commit off is found out, the usual one is fine."""
    connection = psycopg2.connect(empty_database)
    try:
        check_durable(connection)
        with connection.cursor() as cursor:
            cursor.execute("SET synchronous_commit = off")
        connection.commit()
        with pytest.raises(ConfigurationError, match="synchronous_commit switched off"):
            check_durable(connection)
    finally:
        connection.close()
