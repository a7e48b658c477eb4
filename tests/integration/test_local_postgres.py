"""The embedded server: what a newcomer, a crash and a wrong folder do to it."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest

from db.local_postgres import LocalPostgres, free_port
from db.postgres_binaries import copy_binaries, find_binaries
from myqueue.errors import ConfigurationError
from tests.support.accounts import as_ordinary_user
from tests.support.postgres import open_folder
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
SMALL = {"shared_buffers": "16MB", "max_connections": 20}


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """One folder with a server's data for all tests of this file: making it is the slow part."""
    with open_folder() as folder:
        yield folder


@pytest.fixture
def data(home: Path) -> Path:
    return home / "with space" / "postgres"


def query(url: str, statement: str) -> list[tuple]:
    with closing(psycopg2.connect(url, connect_timeout=5)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else []


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_it_starts_takes_settings_and_stops(data: Path):
    """A started server answers with the settings it was given; a stopped one leaves no process and no pid file."""
    server = LocalPostgres(data, settings=SMALL)
    url = server.start()
    pid = server.pid
    try:
        assert query(url, "SHOW max_connections") == [("20",)]
        assert query(url, "SHOW listen_addresses") == [("127.0.0.1",)]
    finally:
        server.stop()
    assert not is_running(pid)
    assert not (data / "postmaster.pid").exists()


def test_nobody_is_trusted(data: Path):
    """Without the password there is no way in, and only we can read the password."""
    with LocalPostgres(data, settings=SMALL) as server:
        with pytest.raises(psycopg2.OperationalError, match=r"no password supplied|authentication failed"):
            psycopg2.connect(host="127.0.0.1", port=server.port, user="postgres", dbname="postgres", connect_timeout=5)
        assert "trust" not in [row[0] for row in query(server.url(), "SELECT auth_method FROM pg_hba_file_rules")]
    assert stat.S_IMODE(server.password_file.stat().st_mode) == 0o600
    assert server.password_file.stat().st_uid == os.geteuid()
    assert not server.password_file.with_name(server.password_file.name + ".new").exists()


def test_rows_survive_a_kill_of_the_whole_server(data: Path):
    """After kill -9 of the postmaster the next start waits for its orphans and finds every committed row."""
    server = LocalPostgres(data, settings=SMALL)
    url = server.start()
    query(url, "DROP TABLE IF EXISTS kept; CREATE TABLE kept AS SELECT generate_series(1, 1000) AS id")
    os.kill(server.pid, signal.SIGKILL)  # not reaped before the next start: a zombie
    second = LocalPostgres(data, settings=SMALL)
    try:
        assert query(second.start(), "SELECT count(*) FROM kept") == [(1000,)]
    finally:
        second.stop()
        server.stop()


def test_a_taken_port_is_said(data: Path):
    """One sentence names the port; nothing was started."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = LocalPostgres(data, port=port, settings=SMALL)
        with pytest.raises(ConfigurationError, match=f"port {port} on 127.0.0.1 is taken by another program"):
            server.start()
    assert server.pid is None


def test_a_running_server_is_not_started_twice(data: Path, monkeypatch: pytest.MonkeyPatch):
    """A second start on the same folder names the first one's pid and leaves it alone."""
    monkeypatch.setattr("db.local_postgres.PREDECESSOR_TIMEOUT_SECONDS", 0.3)
    with LocalPostgres(data, settings=SMALL) as first:
        with pytest.raises(ConfigurationError, match=rf"a PostgreSQL server \(pid {first.pid}\) already runs on"):
            LocalPostgres(data, settings=SMALL).start()
        assert query(first.url(), "SELECT 1") == [(1,)]


def test_a_pid_file_of_another_program_is_stale(data: Path):
    """After a reboot the pid in the file may be anybody's: the server starts all the same."""
    with LocalPostgres(data, settings=SMALL):
        pass
    (data / "postmaster.pid").write_text(f"{os.getpid()}\n{data}\n")
    with LocalPostgres(data, settings=SMALL) as server:
        assert query(server.url(), "SELECT 1") == [(1,)]


def test_a_folder_we_cannot_write_is_said():
    """A read-only folder gives one sentence."""
    with open_folder() as folder:
        folder.chmod(0o555)
        with as_ordinary_user(), pytest.raises(ConfigurationError, match=f"cannot write in {folder}.*make it writable"):
            LocalPostgres(folder / "postgres").start()


def test_data_of_another_major_version_is_said():
    """The sentence names both versions and what to do."""
    with open_folder() as folder:
        (folder / "postgres").mkdir()
        (folder / "postgres" / "PG_VERSION").write_text("99\n")
        with pytest.raises(ConfigurationError, match=r"was made by PostgreSQL 99, but only version .* is here: set PG_BIN"):
            LocalPostgres(folder / "postgres").start()


def test_a_foreign_folder_is_not_touched():
    """A folder with something else in it is refused and stays as it is."""
    with open_folder() as folder:
        (folder / "postgres").mkdir()
        (folder / "postgres" / "thesis.txt").write_text("years of work")
        with pytest.raises(ConfigurationError, match="holds no PostgreSQL data"):
            LocalPostgres(folder / "postgres").start()
        assert (folder / "postgres" / "thesis.txt").read_text() == "years of work"


def test_the_server_ends_with_its_starter(data: Path, home: Path):
    """``python -m db server`` killed -9 takes the server with it: a clean shutdown, by the kernel's signal."""
    ready = home / "ready"
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "db", "server", "--data", data, "--port", str(port), "--ready-file", ready,
                                "--set", "shared_buffers=16MB"], cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        wait_until(ready.exists, timeout_seconds=30, what="the server to be ready")
        pid = int((data / "postmaster.pid").read_text().split()[0])
        process.kill()
        process.wait(10)
        wait_until(lambda: not is_running(pid), what="the server to end")
    finally:
        process.kill()
        process.wait(10)
        ready.unlink(missing_ok=True)


def test_the_command_ends_cleanly_on_sigterm(data: Path, home: Path):
    """SIGTERM to ``python -m db server``: exit code 0, no process, no ready file."""
    ready = home / "ready"
    process = subprocess.Popen([sys.executable, "-m", "db", "server", "--data", data, "--port", str(free_port()), "--ready-file", ready,
                                "--set", "shared_buffers=16MB"], cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        wait_until(ready.exists, timeout_seconds=30, what="the server to be ready")
        process.terminate()
        assert process.wait(20) == 0
        assert not ready.exists() and not (data / "postmaster.pid").exists()
    finally:
        process.kill()
        process.wait(10)


def test_a_copy_of_the_programs_runs_as_well(monkeypatch: pytest.MonkeyPatch):
    """Programs that the server's account cannot reach are copied, libraries included, and the copy works; the second time it is there."""
    with open_folder() as folder:
        original = find_binaries(folder / "data")
        copy = copy_binaries(original, folder / "programs")
        made = (copy / "postgres").stat().st_ino
        assert copy_binaries(original, folder / "programs") == copy
        assert (copy / "postgres").stat().st_ino == made
        monkeypatch.setenv("PG_BIN", str(copy))
        with LocalPostgres(folder / "data", settings=SMALL) as server:
            assert query(server.url(), "SELECT 1") == [(1,)]


def test_servers_that_start_together_share_one_copy_of_the_programs(tmp_path: Path):
    """Each finds it whole, whoever made it."""
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: copy_binaries(find_binaries(tmp_path / "none"), tmp_path / "programs"), range(4)))
    [programs] = found
    assert (programs / "postgres").exists()
    assert 1 == len(list((tmp_path / "programs").iterdir()))
