"""A stand-in for ``ssh`` to the machines of the VBoxManage stand-in: answers where a machine runs that has the address by its seed.

What it is told to do is written down in ``ssh`` of the folder FAKE_VBOX, a line a call: machine, bytes of standard input, command. A
command that shuts the machine down does so. FAKE_SSH_FAIL is a piece of a command that fails, after FAKE_SSH_SECONDS where that is set.
"""

from __future__ import annotations

import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # it is started as a program, without the project on its path
import vboxmanage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

VALUED = ("-i", "-o")


def main(words: Sequence[str]) -> int:
    rest = list(words)
    while rest and rest[0].startswith("-"):
        del rest[:2 if rest[0] in VALUED else 1]
    login, command = rest[0], " ".join(rest[1:])
    address = login.partition("@")[2]
    state = vboxmanage.load() or {"vms": {}}
    names = [name for name, vm in state["vms"].items() if vm["state"] == "running" and answers(vm["attached"].values(), address)]
    if not names:
        print(f"ssh: connect to host {address} port 22: No route to host", file=sys.stderr)
        return 255
    received = len(sys.stdin.buffer.read()) if "tar -xf" in command else 0
    with open(os.path.join(vboxmanage.HOME, "ssh"), "a") as file:
        file.write(f"{names[0]}\t{received}\t{command}\n".replace("\n", " ", command.count("\n")))
    if os.environ.get("FAKE_SSH_FAIL", "\n") in command:
        time.sleep(float(os.environ.get("FAKE_SSH_SECONDS", "0")))  # a connection that hangs
        print("failed on demand", file=sys.stderr)
        return 1
    if "systemctl poweroff" in command:
        state["vms"][names[0]]["state"] = "poweroff"
        vboxmanage.save(state)
        return 255  # the connection is cut
    return 0


def answers(media: Sequence[str], address: str) -> bool:
    """By the seed image that is in its drive, in which the address stands uncompressed."""
    for medium in media:
        if medium.endswith(".iso"):
            with open(medium, "rb") as file:
                if f'"{address}/24"'.encode() in file.read():
                    return True
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
