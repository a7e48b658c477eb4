"""Machines on one computer: each an overlay over one Debian root, with its own processes, mounts, name and network.

The process that makes a lab runs in a network, mount and process namespace of its own (``scripts/rehearse`` sees to that), so that all
of it is gone when that process ends, however it ends. It is also the operator's machine: the bridge is there.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

from tests.support.waiting import wait_until

NETWORK = "10.88.0"
OPERATOR = f"{NETWORK}.254"
COMMAND_SECONDS = 300
ENVIRONMENT = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive")

# What a machine's first process does before it becomes init: its root, with the file systems a running Debian has.
BOOT = """set -euo pipefail
base=$1 own=$2 name=$3
hostname "$name"
mount -t overlay overlay -o "lowerdir=$base,upperdir=$own/upper,workdir=$own/work" "$own/root"
cd "$own/root"
mount -t proc proc proc
mount -t tmpfs -o mode=755 tmpfs dev
mount -t tmpfs -o mode=755 tmpfs run
for device in null:3 zero:5 full:7 random:8 urandom:9; do mknod -m 666 "dev/${device%:*}" c 1 "${device#*:}"; done
mknod -m 666 dev/tty c 5 0
ln -s /proc/self/fd dev/fd
mkdir -m 1777 dev/shm run/lock
mkdir dev/pts
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
install -d -o 0 -g 0 run/postgresql
chroot . chown postgres:postgres /run/postgresql
printf '127.0.0.1 localhost %s\\n' "$name" >etc/hosts
cp "$4" run/init.py
exec chroot . env -i "${@:5}" python3 /run/init.py
"""


def run(*command: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


class Machine:
    """One simulated host; off until ``power_on``."""

    def __init__(self, number: int, base: Path, folder: Path) -> None:
        self.number, self.address, self.name = number, f"{NETWORK}.{number}", f"host-{number}"
        self._base, self._own = base, folder / self.name
        self.root = self._own / "root"
        for part in ("upper", "work", "root"):
            (self._own / part).mkdir(parents=True)
        self._boot: subprocess.Popen | None = None
        self._init = 0

    def __repr__(self) -> str:
        return self.name

    @property
    def is_on(self) -> bool:
        return self._boot is not None and self._boot.poll() is None

    def power_on(self) -> None:
        """When this returns it has its network, and no service runs yet."""
        with open(self._own / "console.log", "ab") as console:
            boot = ["bash", "-c", BOOT, "boot", self._base, self._own, self.name, Path(__file__).with_name("init.py"), *ENVIRONMENT]
            self._boot = subprocess.Popen(["unshare", "--mount", "--net", "--pid", "--uts", "--fork", "--kill-child", *boot],
                                          stdin=subprocess.DEVNULL, stdout=console, stderr=console)
        children = Path(f"/proc/{self._boot.pid}/task/{self._boot.pid}/children")
        self._init = int(wait_until(lambda: children.read_text().split(), what=f"{self.name} to boot")[0])
        wait_until(lambda: self._inside("test", "-e", "/run/init.ready").returncode == 0, what=f"{self.name}'s init", timeout_seconds=30)
        run("ip", "link", "add", f"p{self.number}", "type", "veth", "peer", "name", "eth0", "netns", self._init)
        run("ip", "link", "set", f"p{self.number}", "master", "br0", "up")
        for words in (("link", "set", "lo", "up"), ("addr", "add", f"{self.address}/24", "dev", "eth0"), ("link", "set", "eth0", "up")):
            run("nsenter", "-t", self._init, "-n", "ip", *words)

    def power_off(self) -> None:
        """The cable is pulled: every process ends at once."""
        os.kill(self._init, signal.SIGKILL)
        assert self._boot
        self._boot.wait(30)
        subprocess.run(["ip", "link", "del", f"p{self.number}"], check=False, capture_output=True, timeout=10)  # gone with its other end, or not yet

    def shut_down(self) -> None:
        """Services and PostgreSQL are stopped in order."""
        os.kill(self._init, signal.SIGTERM)
        assert self._boot
        self._boot.wait(60)
        subprocess.run(["ip", "link", "del", f"p{self.number}"], check=False, capture_output=True, timeout=10)

    def start_services(self) -> None:
        """What systemd does at the boot, or ``systemctl restart`` of all units; returns when it is done."""
        self._tell(signal.SIGUSR1)

    def stop_services(self) -> None:
        """``systemctl stop`` of all units; PostgreSQL goes on."""
        self._tell(signal.SIGUSR2)

    def _tell(self, number: int) -> None:
        before = self._done_at()
        os.kill(self._init, number)
        wait_until(lambda: self._done_at() not in ("", before), what=f"{self.name}'s services", timeout_seconds=90)

    def unplug(self) -> None:
        """Its network cable is out: connections hang."""
        run("ip", "link", "set", f"p{self.number}", "down")

    def plug(self) -> None:
        run("ip", "link", "set", f"p{self.number}", "up")

    def put(self, source: Path, destination: str) -> None:
        """A tree of files, as it is now."""
        target = self._own / "upper" / destination.lstrip("/")
        if self.is_on:
            target = Path(f"/proc/{self._init}/root{destination}")
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.pyc", "__pycache__"))

    def sh(self, command: str, *, text: str = "") -> str:
        """Run a shell command as root on the machine; its output. Raises AssertionError where it fails."""
        done = self._inside("bash", "-c", command, text=text)
        if done.returncode:
            raise AssertionError(f"{self.name}: {command}: ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
        return done.stdout

    def code_of(self, command: str) -> int:
        return self._inside("bash", "-c", command).returncode

    def _inside(self, *command: str, text: str = "") -> subprocess.CompletedProcess[str]:
        enter = ["nsenter", "-t", str(self._init), "-m", "-n", "-p", "-u", "chroot", str(self.root), "env", "-i", *ENVIRONMENT]
        return subprocess.run([*enter, *command], input=text, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False,
                              cwd="/")

    def _done_at(self) -> str:
        return self._inside("stat", "-c", "%y", "/run/init.done").stdout


class Lab:
    """All machines and the bridge between them."""

    def __init__(self, base: Path, folder: Path) -> None:
        self._base, self._folder = base, folder
        self.machines: list[Machine] = []
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "br0", "type", "bridge", "stp_state", "0", "forward_delay", "0")
        run("ip", "addr", "add", f"{OPERATOR}/24", "dev", "br0")
        run("ip", "link", "set", "br0", "up")

    def add(self) -> Machine:
        machine = Machine(len(self.machines) + 1, self._base, self._folder)
        self.machines.append(machine)
        machine.power_on()
        return machine
