"""One operating-system process of a node and everything below it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from .folder import LOG_BYTES_MAX

PR_SET_PDEATHSIG = 1
PROC = Path("/proc")
_STATE, _PARENT, _GROUP, _THREADS, _START = 0, 1, 2, 17, 19
SWEEPS_MAX = 20  # a tree that still grows while it is killed is looked at again, this often at most


class NodeProcess:
    """A started process: a session and process group of its own, which the kernel asks to end when its starter is gone.

    Must be started by the starter's main thread: that thread's end is what the kernel watches.
    """

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str], folder: Path, log_file: Path) -> None:
        if log_file.exists() and log_file.stat().st_size > LOG_BYTES_MAX:
            log_file.replace(log_file.with_name(log_file.name + ".1"))
        with open(os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
            self._popen = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, env=dict(environment),
                                           start_new_session=True, preexec_fn=_end_with_parent(os.getpid()))
        self._killed: list[tuple[int, str]] = []  # with the moment each was started: a number may be given to another one

    @property
    def pid(self) -> int:
        return self._popen.pid

    def exit_code(self) -> int | None:
        """None while it, or what was killed with it, runs: until then its sockets take connections. Once it has ended, what is left of its
        group is ended too.
        """
        if self._popen.returncode is None and _has_ended(self.pid):
            # Still unreaped, so the group's number cannot have been given to anybody else.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            if any(_started(pid) == at and is_alive(pid) for pid, at in self._killed) or any(map(is_alive, _group(self.pid))):
                return None
        return self._popen.poll()

    def ask_to_end(self, number: int = signal.SIGTERM) -> None:
        """A signal to the process itself; it ends what it started."""
        self._popen.send_signal(number)

    def signal_tree(self, number: int) -> None:
        """The same signal to the process and all its descendants, other sessions included (PostgreSQL's are)."""
        if self._runs():
            signal_all([self.pid, *descendants(self.pid)], number)

    def kill(self) -> None:
        """End the whole tree at once, as a crash of its machine would. It is reaped by the next ``exit_code``."""
        if self._runs():
            self._killed += [(pid, at) for pid in kill_trees([self.pid]) if (at := _started(pid)) is not None]

    def _runs(self) -> bool:
        """It is not reaped for the question: what is left of its group is to be ended first."""
        return self._popen.returncode is None and not _has_ended(self.pid)


def _has_ended(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _end_with_parent(parent: int) -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)

    def ask() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # gone already
            os._exit(1)

    return ask


# --- trees, by /proc; where there is none, only the processes themselves are known ---


def descendants(pid: int) -> list[int]:
    """All processes below one, nearest first."""
    children: dict[int, list[int]] = {}
    for entry in _processes():
        parent = _parent_of(entry)
        if parent is not None:
            children.setdefault(parent, []).append(entry)
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def marked(mark: str, value_prefix: str) -> list[int]:
    """Processes whose environment has ``mark=value_prefix…``: what a supervisor that is gone had started."""
    wanted = f"{mark}={value_prefix}".encode()
    found = []
    for pid in _processes():
        try:
            environment = (PROC / str(pid) / "environ").read_bytes()
        except OSError:  # gone meanwhile, or somebody else's
            continue
        if pid != os.getpid() and any(entry.startswith(wanted) for entry in environment.split(b"\0")):
            found.append(pid)
    return found


def kill_trees(roots: Sequence[int]) -> list[int]:
    """SIGKILL to processes and everything below them, until nothing of it is left to signal; those that it was sent to."""
    for _ in range(SWEEPS_MAX):
        pids = [pid for root in roots for pid in (root, *descendants(root))]
        signal_all(pids, signal.SIGSTOP)  # first, so that none starts another meanwhile
        again = [pid for root in roots for pid in (root, *descendants(root))]
        if set(again) <= set(pids):
            break
    signal_all(again, signal.SIGKILL)
    return again


def signal_all(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def is_alive(pid: int) -> bool:
    """Whether a process runs. A zombie does not, once its last thread has ended: until then its files and sockets are open."""
    fields = _status(pid)
    return fields is not None and (fields[_STATE] != "Z" or int(fields[_THREADS]) > 1)


def _processes() -> list[int]:
    return [int(entry) for entry in os.listdir(PROC) if entry.isdigit()] if PROC.exists() else []


def _group(number: int) -> list[int]:
    """The processes of a process group."""
    return [pid for pid in _processes() if (fields := _status(pid)) is not None and int(fields[_GROUP]) == number]


def _started(pid: int) -> str | None:
    """When a process was started, in ticks since the machine was; None where there is none."""
    fields = _status(pid)
    return fields[_START] if fields else None


def _status(pid: int) -> list[str] | None:
    """The fields of a process's state behind its name; see proc(5)."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _parent_of(pid: int) -> int | None:
    fields = _status(pid)
    return int(fields[_PARENT]) if fields else None
