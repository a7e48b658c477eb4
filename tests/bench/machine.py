"""What the machine is and what runs on it: cores, commit, the disk's own pace, CPU time of process trees. Linux (/proc)."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from myqueue.supervisor.process import descendants

from .figures import CLIENT, ELSE, quantile

PROC = Path("/proc")
ROOT = Path(__file__).resolve().parents[2]
TICK = os.sysconf("SC_CLK_TCK")
PROBE_WRITES, PROBE_BYTES = 200, 8192
GIT_SECONDS = 10
NO_DISK_MS = 0.02  # no device keeps anything in less


def described() -> dict[str, Any]:
    """The machine, the interpreter and the code, as JSON values."""
    return {"cores": os.cpu_count(), "cpu": _cpu_model(), "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
            "system": platform.platform(), "python": platform.python_version(), "commit": _commit(),
            "load_before": [round(load, 2) for load in os.getloadavg()]}


def disk(folder: Path) -> dict[str, float]:
    """How long one write of 8 KiB with fdatasync takes in this folder: what one acknowledgement costs at least."""
    taken = []
    descriptor = os.open(folder / "probe", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for number in range(PROBE_WRITES):
            began = time.perf_counter()
            os.pwrite(descriptor, b"x" * PROBE_BYTES, number * PROBE_BYTES)
            os.fdatasync(descriptor)
            taken.append((time.perf_counter() - began) * 1e3)
    finally:
        os.close(descriptor)
        (folder / "probe").unlink()
    return {"fsync_p50_ms": round(quantile(taken, 0.5), 3), "fsync_p99_ms": round(quantile(taken, 0.99), 3)}


class CpuWatch:
    """CPU seconds since it was made: of the client, of each kind of server below ``roots``, and of everything else that ran.

    The client is this process and all it started, except the trees of ``all_roots``. Process trees are looked up outside of the time
    that counts; a process that was started meanwhile is found at the end.
    """

    def __init__(self, roots: Mapping[str, Sequence[int]], all_roots: Sequence[int]) -> None:
        self._roots, self._all_roots = roots, all_roots
        self._trees = self._look()
        self._busy = _busy_seconds()
        self._before = {pid: _seconds_of(pid) for pids in self._trees.values() for pid in pids}

    def used(self) -> dict[str, float]:
        """By kind; "else" is what neither the client nor its servers used."""
        busy = _busy_seconds() - self._busy
        after = {pid: _seconds_of(pid) for pid in self._before}
        new = {kind: pids - self._before.keys() for kind, pids in self._look().items()}
        used = {kind: sum(max(0.0, after[pid] - self._before[pid]) for pid in pids) + sum(map(_seconds_of, new[kind]))
                for kind, pids in self._trees.items()}
        return {**used, ELSE: max(0.0, busy - sum(used.values()))}

    def _look(self) -> dict[str, set[int]]:
        clients = {os.getpid(), *descendants(os.getpid())} - set(tree(self._all_roots))
        return {CLIENT: clients, **{kind: set(tree(pids)) for kind, pids in self._roots.items()}}


def memory_bytes(pids: Iterable[int]) -> int:
    """Resident memory of processes; what several share is counted once, in parts. A process that ended meanwhile counts nothing."""
    return sum(map(_proportional_bytes, pids))


def tree(roots: Iterable[int]) -> list[int]:
    return [pid for root in roots for pid in (root, *descendants(root))]


def _proportional_bytes(pid: int) -> int:
    try:
        text = (PROC / str(pid) / "smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0) << 10


def _seconds_of(pid: int) -> float:
    """User and system time of a process and of its children that have ended."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0  # it has ended meanwhile: its parent counts it
    return sum(map(int, fields[11:15])) / TICK


def _busy_seconds() -> float:
    user, nice, system, _idle, _waiting, interrupts, soft = map(int, (PROC / "stat").read_text().split("\n", 1)[0].split()[1:8])
    return (user + nice + system + interrupts + soft) / TICK


def _cpu_model() -> str:
    lines = (PROC / "cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _commit() -> str | None:
    """The commit, with a + where files differ from it; None outside of a clone."""
    try:
        said = subprocess.run(["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"], cwd=ROOT, capture_output=True, text=True,
                              timeout=GIT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return said.stdout.strip()
