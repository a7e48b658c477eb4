"""A person's computer on which the VirtualBox scripts run: the stand-ins on its PATH, its own home, a world to look at."""

from __future__ import annotations

import marshal
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
COMMAND = ROOT / "scripts" / "vbox" / "cluster.sh"
TIMEOUT_SECONDS = 55
KEYGEN = '''while [ $# -gt 0 ]; do
    case $1 in -R) exit 0 ;; -f) file=$2 ;; esac
    shift
done
echo "a private key" >"$file" && echo "ssh-ed25519 AAAA myqueue" >"$file.pub"'''
STAND_INS = {"VBoxManage": "vboxmanage.py", "ssh": "ssh.py"}


class Computer:
    """Runs commands of ``cluster.sh`` in a folder of its own.

    Args:
        system: what ``uname -s`` says, Linux or Darwin.
    """

    def __init__(self, folder: Path, *, system: str = "Linux", machine: str = "x86_64") -> None:
        self.home = folder / "a home" / "vbox"  # with a space, as people have it
        self.world_folder = folder / "world"
        self.world_folder.mkdir(parents=True)
        tools = folder / "tools"
        tools.mkdir()
        self.image = folder / "debian 12.raw"
        self.image.write_text("an image")
        (folder / "meminfo").write_text("MemTotal:       16000000 kB\nMemAvailable:    9000000 kB\n")
        for name, file in STAND_INS.items():
            self._tool(tools / name, f'exec "{sys.executable}" -I -S "{Path(__file__).with_name(file)}" "$@"')
        self._tool(tools / "uname", f'case $1 in -s) echo {system} ;; -m) echo {machine} ;; esac')
        self._tool(tools / "ssh-keygen", KEYGEN)
        self._tool(tools / "vm_stat", 'echo "Mach Virtual Memory Statistics: (page size of 4096 bytes)"; echo "Pages free:          9000000."')
        self.environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "FAKE_VBOX": str(self.world_folder),
                            "MYQUEUE_VBOX_HOME": str(self.home), "MYQUEUE_VBOX_WAIT_SECONDS": "0",
                            "MYQUEUE_VBOX_MEMINFO": str(folder / "meminfo")}

    @staticmethod
    def _tool(path: Path, script: str) -> None:
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def run(self, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(COMMAND), *map(str, words)], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, stdin=subprocess.DEVNULL,
                              env={**self.environment, **environment})

    def start(self, *words: object, **environment: str) -> subprocess.Popen[bytes]:
        """A command that is left running; whoever starts it ends it."""
        return subprocess.Popen([str(COMMAND), *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                env={**self.environment, **environment})

    def must(self, *words: object, **environment: str) -> str:
        """What a command says that has to end well."""
        done = self.run(*words, **environment)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    @property
    def world(self) -> dict[str, Any]:
        state = self.world_folder / "state"
        return marshal.loads(state.read_bytes()) if state.exists() else {"vms": {}, "media": {}, "interfaces": {}, "networks": {}}

    @world.setter
    def world(self, state: dict[str, Any]) -> None:
        (self.world_folder / "state").write_bytes(marshal.dumps(state))

    def states(self) -> dict[str, str]:
        return {name: vm["state"] for name, vm in self.world["vms"].items()}

    def calls(self) -> list[list[str]]:
        return [line.split("\t") for line in (self.world_folder / "calls").read_text().splitlines()]

    def by_ssh(self) -> list[dict[str, Any]]:
        """Every command that ran on a machine: machine, received (bytes of its standard input), command."""
        found = [line.split("\t", 2) for line in (self.world_folder / "ssh").read_text().splitlines()]
        return [{"machine": machine, "received": int(received), "command": command} for machine, received, command in found]
