"""Process 1 of a simulated machine: does with the installed units what systemd would, as far as their lines about starting go.

Runs inside the machine with Debian's own Python, so it imports nothing of the project. SIGUSR1: PostgreSQL is started where there is
a server, and every unit is (re)started. SIGUSR2: the units are stopped. SIGTERM: all is stopped in order. A service that ends is
started again after RestartSec.
"""

from __future__ import annotations

import os
import pwd
import shlex
import signal
import subprocess
import time
from pathlib import Path

UNITS = Path("/etc/systemd/system")
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
DONE = Path("/run/init.done")  # its time is that of the last SIGUSR1 or SIGUSR2 that was carried out


def read_unit(path: Path) -> dict[str, list[str]]:
    """Every value of each name, in order; no name is in two of the sections."""
    found: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def environment_of(unit: dict[str, list[str]]) -> dict[str, str]:
    variables = dict(ENVIRONMENT)
    for file in unit.get("EnvironmentFile", []):
        path = Path(file.removeprefix("-"))
        if path.exists() or not file.startswith("-"):
            variables.update(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line and not line.startswith("#"))
    return variables


class Service:
    """One unit's process."""

    def __init__(self, path: Path) -> None:
        self.name, self.unit = path.stem, read_unit(path)
        self.process: subprocess.Popen | None = None
        self.due = 0.0

    def start(self) -> None:
        unit = self.unit
        if any(Path(path.removeprefix("!")).exists() == path.startswith("!") for path in unit.get("AssertPathExists", [])):
            return  # as systemd: it is not tried again either
        user = pwd.getpwnam(unit["User"][0])
        with open(f"/var/log/{self.name}.log", "ab") as log:
            self.process = subprocess.Popen(shlex.split(unit["ExecStart"][0]), cwd=unit["WorkingDirectory"][0], env=environment_of(unit), stdout=log,
                                            stderr=log, stdin=subprocess.DEVNULL, user=user.pw_uid, group=user.pw_gid, extra_groups=[], umask=0o077,
                                            start_new_session=True)
        self.due = 0.0

    def stop(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(float(self.unit["TimeoutStopSec"][0]))
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(10)
        self.process = None

    def look(self, now: float) -> None:
        """Start it again some time after its end."""
        if self.process and self.process.poll() is not None:
            self.process, self.due = None, now + float(self.unit["RestartSec"][0])
        if self.process is None and 0.0 < self.due <= now:
            self.start()


def servers() -> list[Path]:
    return sorted(Path("/etc/postgresql").glob("*/myqueue"))


def control_postgres(*words: str) -> None:
    for server in servers():
        subprocess.run(["pg_ctlcluster", server.parent.name, "myqueue", *words], check=False, timeout=60, stdin=subprocess.DEVNULL)


def reap(services: list[Service]) -> None:
    """Orphans become children of process 1; a service's own process is waited for by its Popen."""
    own = {service.process.pid for service in services if service.process}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if status[0] == "Z" and status[1] == "1" and int(folder.name) not in own:
            os.waitpid(int(folder.name), os.WNOHANG)


def main() -> None:
    wanted: list[str] = []
    signal.signal(signal.SIGUSR1, lambda *_: wanted.append("start"))
    signal.signal(signal.SIGUSR2, lambda *_: wanted.append("rest"))
    signal.signal(signal.SIGTERM, lambda *_: wanted.append("stop"))
    services: list[Service] = []
    Path("/run/init.ready").touch()
    while True:
        if "stop" in wanted:
            for service in services:
                service.stop()
            control_postgres("stop", "-m", "fast")
            return
        if "rest" in wanted:
            wanted.remove("rest")
            for service in services:
                service.stop()
            services = []
            DONE.touch()
        if "start" in wanted:
            wanted.remove("start")
            control_postgres("start")
            for service in services:
                service.stop()
            services = [Service(path) for path in sorted(UNITS.glob("myqueue-*.service"))]
            for service in services:
                service.start()
            DONE.touch()
        for service in services:
            service.look(time.monotonic())
        reap(services)
        time.sleep(0.1)


if __name__ == "__main__":
    main()
