"""A cluster's data folder: what is kept between runs, secrets, logs, and who owns it just now.

    cluster.json     shape, ports, and where PostgreSQL's data is
    secrets/         0700; passwords, the cluster's secret, pgpass for Spark: each file 0600
    logs/            0700; a file per node
    run/             0700; the supervisor's lock, how to reach it, ready files: nothing that must last
    postgres/        PostgreSQL's data, unless its account cannot enter here: then below /var/lib/myqueue
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import stat
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from ..errors import ConfigurationError
from .plan import Places, pgpass
from .ports import PortKeeper, is_free, is_free_soon
from .spec import EXTERNAL, HOST, ClusterSpec

VERSION = 1
HOME_BELOW_ROOT = Path("/var/lib/myqueue")
SECRET_BYTES = 32
OURS = frozenset({"secrets", "logs", "run", "postgres"})  # what an interrupted first start may have left
LOG_BYTES_MAX = 16 * 2**20
# Whoever asks whether there is a supervisor holds its lock for a moment: a supervisor that starts tries again.
LOCK_TRIES, LOCK_PAUSE_SECONDS = 40, 0.05
# A killed process lets go of its ports when it has given back its memory, and looks gone before that: ports of the last time are waited for.
AGAIN_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Saved:
    """What cluster.json holds."""

    cluster_id: str
    spec: ClusterSpec
    postgres_home: str
    ports: dict[str, int] = field(default_factory=dict)
    balancer_ports: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"version": VERSION, "cluster_id": self.cluster_id, "spec": self.spec.to_json(), "postgres_home": self.postgres_home,
                "ports": self.ports, "balancer_ports": list(self.balancer_ports)}

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Saved:
        if body.get("version") != VERSION:
            raise ConfigurationError(f"cluster.json has version {body.get('version')}, this program knows {VERSION}")
        return cls(body["cluster_id"], ClusterSpec.from_json(body["spec"]), body["postgres_home"], dict(body["ports"]), tuple(body["balancer_ports"]))


class DataFolder:
    """One cluster's folder. Making the object touches nothing."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).resolve()
        self.secrets, self.logs, self.run = self.path / "secrets", self.path / "logs", self.path / "run"
        self.control_file, self.failure_file = self.run / "control.json", self.run / "failure.json"
        self.pgpass_file, self.secret_file = self.secrets / "pgpass", self.secrets / "cluster.secret"
        self._saved_file, self._lock_file = self.path / "cluster.json", self.run / "supervisor.lock"
        self._growth_file = self.run / "growth.lock"
        self.keeper = PortKeeper()  # keeps what prepare and grow pick until it is told to let go

    # --- what is kept ---

    def load(self) -> Saved | None:
        """What was saved; None if there is no cluster here.

        Raises:
            ConfigurationError: it cannot be read.
        """
        try:
            return Saved.from_json(json.loads(self._saved_file.read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(f"{self._saved_file} cannot be read: {error}") from None

    def prepare(self, wanted: ClusterSpec | None) -> Saved:
        """Make the folder and what it holds, or bring what is there to what is wanted (None: as it was).

        Ports that somebody else took meanwhile are picked anew, the balancer's excepted.

        Raises:
            ConfigurationError: the folder cannot be used, the shape cannot be changed like this, or the balancer's port is taken.
        """
        before = self.load()
        if before is None and self.path.exists() and any(entry.name not in OURS for entry in self.path.iterdir()):
            raise ConfigurationError(f"{self.path} is not empty and holds no cluster: choose another data folder")
        if before and wanted:
            wanted.grown_from(before.spec)
        spec = wanted or (before.spec if before else ClusterSpec())
        kept = before.ports if before else {}
        deadline = time.monotonic() + AGAIN_SECONDS  # for all of them together
        # Ports are known to be free before anything is made.
        balancer_ports = _balancer_ports(spec, before, self.keeper, taken=kept.values(), deadline=deadline)
        ports = _node_ports(spec, kept, self.keeper, taken=balancer_ports, deadline=deadline)
        self._make()
        saved = before or Saved(secrets.token_hex(6), spec, "")
        saved = replace(saved, spec=spec, ports=ports, balancer_ports=balancer_ports,
                        postgres_home=saved.postgres_home or str(self._choose_postgres_home(saved.cluster_id)))
        for name in ("owner.password", "reader.password", "cluster.secret"):
            if not (self.secrets / name).exists():
                write_secret(self.secrets / name, secrets.token_urlsafe(SECRET_BYTES))
        _write_whole(self._saved_file, json.dumps(saved.to_json(), indent=1) + "\n")
        return saved

    def grow(self, saved: Saved) -> Saved:
        """One broker more, with ports of its own, written down before anything of it is started. The others keep theirs: they are in use.

        Raises:
            ConfigurationError: there are as many brokers as there may be.
        """
        spec = replace(saved.spec, brokers=saved.spec.brokers + 1)
        ports = dict(saved.ports)
        for name in (*spec.postgres_names(), *spec.database_nodes()):
            if name not in ports:
                ports[name] = self.keeper.pick({*ports.values(), *saved.balancer_ports})
        grown = replace(saved, spec=spec, ports=ports)
        _write_whole(self._saved_file, json.dumps(grown.to_json(), indent=1) + "\n")
        return grown

    @contextlib.contextmanager
    def one_grows(self) -> Iterator[None]:
        """Let one process at a time add nodes. Raises ConfigurationError where another one does."""
        with open(self._growth_file, "a") as file:
            if not _lock(file):
                raise ConfigurationError(f"a broker is just being added to the cluster in {self.path}: try again when it is there")
            yield

    def places(self, saved: Saved, server_url: str | None) -> Places:
        """What a plan needs of this folder."""
        owner, reader = ((self.secrets / f"{name}.password").read_text().strip() for name in ("owner", "reader"))
        return Places(data=str(self.path), cluster_id=saved.cluster_id, prefix=self.prefix(saved), ports=saved.ports,
                      balancer_ports=saved.balancer_ports, run=str(self.run), logs=str(self.logs), postgres_home=saved.postgres_home,
                      secret_file=str(self.secret_file), owner_password=owner, reader_password=reader, server_url=server_url)

    def before_start(self, saved: Saved, places: Places) -> None:
        """Forget how the last supervisor was reached and what it said, and write pgpass, which goes by the ports."""
        for file in (self.control_file, self.failure_file):
            file.unlink(missing_ok=True)
        self.write_pgpass(saved, places)

    def write_pgpass(self, saved: Saved, places: Places) -> None:
        """The reader's password for every node's database."""
        write_secret(self.pgpass_file, pgpass(saved.spec, places))

    @staticmethod
    def prefix(saved: Saved) -> str:
        """What roles and databases are called by: on a server of one's own, clusters must not meet."""
        return f"myqueue_{saved.cluster_id}" if saved.spec.postgres == EXTERNAL else "myqueue"

    def remove(self) -> None:
        """Delete everything, PostgreSQL's data elsewhere included. Only a folder that holds a cluster is touched."""
        saved = self.load()
        if saved is None:
            raise ConfigurationError(f"there is no cluster in {self.path}")
        home = Path(saved.postgres_home)
        if home.is_relative_to(HOME_BELOW_ROOT) and home != HOME_BELOW_ROOT:
            shutil.rmtree(home, ignore_errors=False) if home.exists() else None
            with contextlib.suppress(OSError):  # other clusters' data may be in it
                HOME_BELOW_ROOT.rmdir()
        shutil.rmtree(self.path)

    def _make(self) -> None:
        # As root, PostgreSQL's account must be able to pass through; what is inside is closed all the same.
        mode = 0o711 if os.geteuid() == 0 else 0o700
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.path.chmod(mode)
            for folder in (self.secrets, self.logs, self.run):
                folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"cannot write in {self.path} ({error.strerror}): make it writable, or choose another by --data") from None

    def _choose_postgres_home(self, cluster_id: str) -> Path:
        """Below the data folder, unless we are root and PostgreSQL, which never runs as root, could not get there."""
        home = self.path / "postgres"
        if os.geteuid() == 0 and not all(folder.stat().st_mode & stat.S_IXOTH for folder in (self.path, *self.path.parents)):
            home = HOME_BELOW_ROOT / cluster_id
            HOME_BELOW_ROOT.mkdir(mode=0o755, parents=True, exist_ok=True)
        home.mkdir(mode=0o711, exist_ok=True)
        return home

    # --- who owns it ---

    @contextlib.contextmanager
    def supervised(self) -> Iterator[None]:
        """Be the supervisor of this folder, for as long as the block or the process lives.

        Raises:
            ConfigurationError: another one is.
        """
        with open(self._lock_file, "a") as file:
            tries = LOCK_TRIES
            while not _lock(file):
                tries -= 1
                if not tries:
                    raise ConfigurationError(f"another supervisor runs the cluster in {self.path}")
                time.sleep(LOCK_PAUSE_SECONDS)
            yield

    def is_supervised(self) -> bool:
        """Whether a supervisor lives: the kernel lets go of its lock however it ends."""
        try:
            with open(self._lock_file, "a") as file:
                return not _lock(file)
        except FileNotFoundError:
            return False

    # --- logs ---

    def log_tail(self, name: str, lines: int) -> list[str]:
        """The last lines of a node's log."""
        try:
            with open(self.logs / f"{name}.log", "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - lines * 1_000))
                text = file.read().decode(errors="replace")
        except FileNotFoundError:
            return []
        return text.splitlines()[-lines:]


def write_secret(path: Path, text: str) -> None:
    """A file only we can read, whole or not at all."""
    making = path.with_name(path.name + ".new")
    making.unlink(missing_ok=True)
    with open(os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text if text.endswith("\n") else text + "\n")
        file.flush()
        os.fsync(file.fileno())
    making.replace(path)


def _lock(file: IO[str]) -> bool:
    """Take the lock until the file is closed, if nobody has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_whole(path: Path, text: str) -> None:
    making = path.with_name(path.name + ".new")
    with open(making, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    making.replace(path)


def _node_ports(spec: ClusterSpec, before: dict[str, int], keeper: PortKeeper, *, taken: Collection[int],
                deadline: float) -> dict[str, int]:
    ports: dict[str, int] = {}
    for name in (*spec.postgres_names(), *spec.database_nodes()):
        last = before.get(name)
        ports[name] = _again(last, keeper, deadline) or keeper.pick({*taken, *before.values(), *ports.values()})
    return ports


def _balancer_ports(spec: ClusterSpec, before: Saved | None, keeper: PortKeeper, *, taken: Collection[int], deadline: float) -> tuple[int, ...]:
    last_ports = list(before.balancer_ports) if before and before.spec.ports == spec.ports else [0] * len(spec.ports)
    ports: list[int] = []
    for wanted, last in zip(spec.ports, last_ports, strict=True):
        if wanted and not (is_free_soon(wanted, deadline) if before else is_free(wanted)):
            raise ConfigurationError(f"port {wanted} on {HOST} is taken by another program: choose another by --port")
        ports.append(wanted or _again(last, keeper, deadline) or keeper.pick({*taken, *ports}))
    keeper.keep(ports)
    return tuple(ports)


def _again(port: int | None, keeper: PortKeeper, deadline: float) -> int | None:
    """A port of the last time, kept from now on; None where it is somebody else's by now."""
    if not port or not (keeper.keeps(port) or is_free_soon(port, deadline)):
        return None
    keeper.keep([port])
    return port
