"""Runs the PostgreSQL server of a wheel or of the system: one foreground child, on loopback, with a password.

No pg_ctl: the child's exit status and its ``postmaster.pid`` say all there is to know. The superuser's password is made
with the data folder and kept in a file only we can read; no connection is ever trusted.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from myqueue.clock import SystemClock
from myqueue.errors import ConfigurationError, UnavailableError

from .postgres_binaries import can_enter, copy_binaries, find_binaries, major_version, server_account

HOST = "127.0.0.1"
SUPERUSER = "postgres"
DEFAULT_SETTINGS: Mapping[str, str | int] = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": 100,
    "shared_buffers": "128MB",
    "jit": "off",  # short statements only: compiling them costs more than it saves
    **({"recovery_init_sync_method": "syncfs"} if sys.platform == "linux" else {}),  # after a crash one call, not one for each file
}
SYNCFS_MAJOR = 17  # whose initdb knows that call too
POLL_SECONDS = 0.02
INITDB_TIMEOUT_SECONDS = 120
PREDECESSOR_TIMEOUT_SECONDS = 15  # an orphan ends itself within 2 s, a fast shutdown within a checkpoint
SAID_BYTES_MAX = 2_000
PORT_TRIES = 5
PR_SET_PDEATHSIG = 1

_clock = SystemClock()


def free_port(host: str = HOST) -> int:
    """A port nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


def is_port_free(port: int, host: str = HOST) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


class LocalPostgres:
    """A PostgreSQL server on a data folder of its own.

    Args:
        data: the data folder; made at the first start. Its siblings ``<data>.password`` and ``<data>.log`` belong to it.
        port: None picks a free one at each start.
        settings: server settings beside :data:`DEFAULT_SETTINGS`, given on the command line, so never secrets.
        log_file: where the server's own output goes.
        die_with_parent: the server shuts down when the thread that started it ends, however it ends (Linux).
    """

    def __init__(self, data: Path, *, port: int | None = None, settings: Mapping[str, str | int] | None = None,
                 log_file: Path | None = None, die_with_parent: bool = True) -> None:
        self.data = Path(data).resolve()
        self.settings = {**DEFAULT_SETTINGS, **(settings or {})}
        self.password_file = self.data.with_name(self.data.name + ".password")
        self.log_file = Path(log_file).resolve() if log_file else self.data.with_name(self.data.name + ".log")
        self.port = port
        self._fixed_port = port
        self._die_with_parent = die_with_parent
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def url(self, database: str = "postgres") -> str:
        """A superuser's URL with the password in it: never log it."""
        return f"postgresql://{SUPERUSER}:{quote(self.password_file.read_text().strip())}@{HOST}:{self.port}/{quote(database)}"

    def start(self, timeout_seconds: float = 60) -> str:
        """Start the server; when this returns it takes connections.

        Raises:
            ConfigurationError: it cannot run like this (port taken, folder not writable, another version's data …).
            UnavailableError: it was not ready in time and was stopped again.
        """
        deadline = _clock.monotonic() + timeout_seconds
        self._prepare()
        self._await_predecessor(deadline)
        bind_failures = 0
        while True:
            self.port = self._fixed_port or free_port()
            self._refuse_taken_port()
            said = self._launch(deadline)
            if said is None:
                return self.url()
            bind_failures += "could not bind" in said
            lost_the_port = "could not bind" in said and self._fixed_port is None and bind_failures < PORT_TRIES
            processes_are_going = "still in use" in said  # those of a server that was killed
            if not (lost_the_port or processes_are_going) or _clock.monotonic() > deadline:
                break
            time.sleep(POLL_SECONDS)
        if "could not bind" in said:
            raise ConfigurationError(f"port {self.port} on {HOST} is taken by another program: choose another port")
        raise ConfigurationError(f"PostgreSQL did not start on {self.data}: {_last_complaint(said)} (log: {self.log_file})")

    def wait(self, timeout_seconds: float | None = None) -> int:
        """Wait until the server ends by itself or by a signal; its exit code.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        assert self._process is not None, "the server was not started"
        return self._process.wait(timeout_seconds)

    def stop(self, timeout_seconds: float = 30, *, immediate: bool = False) -> None:
        """End the server: fast shutdown, then immediate, then kill; each has the time-out for itself. Nothing happens if it does not run.

        ``immediate`` begins with the second, which writes no last checkpoint: what is committed is there after a recovery.
        """
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL)[immediate:]:
            if self._process is None or self._process.poll() is not None:
                break
            self._process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_seconds)
        self._process = None

    def __enter__(self) -> LocalPostgres:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # --- preparing the folder ---

    def _prepare(self) -> None:
        """Choose binaries and account, and make the data folder if it is not there."""
        with self._folder_lock():
            self._account = server_account(self.data)
            self._bin = find_binaries(self.data)
            if self._account:
                self._check_reach(self._account)
            if not self.data.exists() or not any(self.data.iterdir()):
                self._initialise()
        if not (self.data / "PG_VERSION").exists():
            raise ConfigurationError(f"{self.data} is not empty and holds no PostgreSQL data: choose another data folder")
        if not self.password_file.exists():
            raise ConfigurationError(f"{self.password_file} is missing: without it nobody can log in to {self.data}")

    def _check_reach(self, account: pwd.struct_passwd) -> None:
        if not can_enter(account, self.data.parent):
            raise ConfigurationError(f"as root, PostgreSQL runs as {account.pw_name}, who cannot enter {self.data.parent}: "
                                     "choose another data folder")
        if not can_enter(account, self._bin / "postgres"):
            self._bin = copy_binaries(self._bin, self.data.with_name(".postgres-programs"))

    @contextlib.contextmanager
    def _folder_lock(self) -> Iterator[None]:
        """Two starters at once make one data folder. Taking it also shows whether we may write here at all."""
        try:
            self.data.parent.mkdir(parents=True, exist_ok=True)
            file = open(self.data.with_name(self.data.name + ".lock"), "w")  # noqa: SIM115
        except OSError as error:
            raise ConfigurationError(f"cannot write in {self.data.parent} ({error.strerror}): make it writable, "
                                     "or choose another data folder") from None
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _initialise(self) -> None:
        """Make the data folder, whole or not at all: elsewhere first, then renamed."""
        making = self.data.with_name(self.data.name + ".new")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(mode=0o700)
        password = secrets.token_urlsafe(24)
        _write_secret(self.password_file, password)
        handed_over = self.data.with_name(self.data.name + ".password.new")  # the server's account cannot read ours
        _write_secret(handed_over, password)
        try:
            if self._account:
                os.chown(making, self._account.pw_uid, self._account.pw_gid)
                os.chown(handed_over, self._account.pw_uid, self._account.pw_gid)
            made = self._popen(self._bin / "initdb", "-D", making, "-U", SUPERUSER, "-A", "scram-sha-256", f"--pwfile={handed_over}",
                               "-E", "UTF8", "--no-locale", *self._sync_options(), stdout=subprocess.PIPE)
            try:
                said = made.communicate(timeout=INITDB_TIMEOUT_SECONDS)[0].decode(errors="replace")
            except BaseException:
                made.kill()
                made.communicate()
                raise
            if made.returncode:
                raise ConfigurationError(f"initdb could not make {self.data}: {_last_complaint(said)}")
            if self.data.exists():
                self.data.rmdir()
            making.rename(self.data)
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"initdb did not make {self.data} within {INITDB_TIMEOUT_SECONDS} s") from None
        finally:
            handed_over.unlink(missing_ok=True)
            shutil.rmtree(making, ignore_errors=True)

    def _sync_options(self) -> list[str]:
        """How initdb brings a new data folder to the disk: in one call where it can."""
        return ["--sync-method=syncfs"] if sys.platform == "linux" and major_version(self._bin) >= SYNCFS_MAJOR else []

    # --- running ---

    def _popen(self, *command: object, **options: Any) -> subprocess.Popen[bytes]:
        if self._account:
            options |= {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}
        environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}
        return subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, cwd="/", env=environment,
                                **options)

    def _await_predecessor(self, deadline: float) -> None:
        """A server of a starter that was killed is just shutting down: let it. A stale pid file must go.

        A postmaster that was killed but not reaped (a zombie) still answers signal 0, and a pid may have been given to
        another program since: PostgreSQL itself would refuse to start in both cases.
        """
        until = min(deadline, _clock.monotonic() + PREDECESSOR_TIMEOUT_SECONDS)
        while pid := self._pid_in_file():
            if not _is_live_postgres(pid):
                (self.data / "postmaster.pid").unlink(missing_ok=True)
                return
            if _clock.monotonic() > until:
                raise ConfigurationError(f"a PostgreSQL server (pid {pid}) already runs on {self.data}: stop it first")
            time.sleep(POLL_SECONDS)

    def _pid_in_file(self) -> int | None:
        try:
            return int((self.data / "postmaster.pid").read_text().split()[0])
        except (FileNotFoundError, ValueError, IndexError):
            return None

    def _refuse_taken_port(self) -> None:
        if self._fixed_port is not None and not is_port_free(self._fixed_port):
            raise ConfigurationError(f"port {self._fixed_port} on {HOST} is taken by another program: choose another port")

    def _launch(self, deadline: float) -> str | None:
        """Start once: None when it is ready, what it said when it ended instead."""
        options = [part for name, value in {**self.settings, "port": self.port}.items() for part in ("-c", f"{name}={value}")]
        with open(self.log_file, "ab") as log:
            said_from = log.tell()
            self._process = self._popen(self._bin / "postgres", "-D", self.data, *options, stdout=log, start_new_session=True,
                                        preexec_fn=_end_with_parent(os.getpid()) if self._die_with_parent else None)
        try:
            while not self._is_ready():
                if _clock.monotonic() > deadline:
                    raise UnavailableError(f"PostgreSQL on {self.data} was not ready in time (log: {self.log_file})")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(POLL_SECONDS)
                    return self.log_file.read_bytes()[said_from:].decode(errors="replace")
        except BaseException:
            self.stop(timeout_seconds=5)
            raise
        return None

    def _is_ready(self) -> bool:
        """By the pid file: a trial connection to the port could be answered by somebody else's server."""
        assert self._process is not None
        try:
            lines = (self.data / "postmaster.pid").read_text().split("\n")
        except OSError:  # not written yet, or just removed
            return False
        return len(lines) >= 8 and lines[0] == str(self._process.pid) and lines[7].strip() == "ready"


def _write_secret(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())


def _end_with_parent(parent: int) -> Any:
    """What the child does before it becomes the server: ask for a fast shutdown when its parent is gone."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)

    def ask() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGINT)
        if os.getppid() != parent:  # gone already
            os._exit(1)

    return ask


def _is_live_postgres(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
    except OSError:  # no /proc here: signal 0 is all we know
        return not Path("/proc/self").exists()
    return name.startswith("postgres") and rest.split()[0] != "Z"


def _last_complaint(said: str) -> str:
    lines = [line.strip() for line in said[-SAID_BYTES_MAX:].splitlines() if line.strip()]
    complaints = [line for line in lines if "FATAL" in line or "error" in line.lower()]
    return (complaints or lines or ["it said nothing"])[-1]
