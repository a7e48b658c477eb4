"""Writes the seed image of a virtual machine: an ISO labelled CIDATA from which cloud-init takes name, key and addresses (NoCloud).

python seed.py OUT --name NAME --address A/24 --nat-mac M --cluster-mac M --key FILE: OUT is there as a whole or not at all.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pycdlib

USER = "operator"


def seed_files(*, name: str, address: str, nat_mac: str, cluster_mac: str, key: str) -> dict[str, str]:
    """What cloud-init reads, by file name. Only the key opens the machine; its first network card is for packages, the second for the cluster."""
    return {
        "meta-data": f"instance-id: {name}-{cluster_mac}\nlocal-hostname: {name}\n",
        "user-data": f"""#cloud-config
hostname: {name}
ssh_pwauth: false
disable_root: true
users:
  - name: {USER}
    shell: /bin/bash
    lock_passwd: true
    sudo: ALL=(ALL) NOPASSWD:ALL
    ssh_authorized_keys:
      - {key.strip()}
""",
        "network-config": f"""version: 2
ethernets:
  nat:
    match:
      macaddress: "{with_colons(nat_mac)}"
    dhcp4: true
  cluster:
    match:
      macaddress: "{with_colons(cluster_mac)}"
    addresses: ["{address}"]
""",
    }


def with_colons(mac: str) -> str:
    """VirtualBox's spelling into everybody else's. Raises ValueError."""
    if len(mac) != 12 or not all(character in "0123456789abcdefABCDEF" for character in mac):
        raise ValueError(f"{mac!r} is no hardware address of twelve hexadecimal digits")
    return ":".join(mac[place:place + 2] for place in range(0, 12, 2)).lower()


def write_image(path: Path, files: Mapping[str, str]) -> None:
    """ISO 9660 with Joliet and Rock Ridge, so that every reader sees the names as they are."""
    image = pycdlib.PyCdlib()
    image.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident="CIDATA")
    for number, (name, text) in enumerate(sorted(files.items())):
        content = text.encode()
        image.add_fp(io.BytesIO(content), len(content), f"/FILE{number}.;1", rr_name=name, joliet_path=f"/{name}")
    new = path.with_name(path.name + ".new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        image.write_fp(file)
    image.close()
    new.replace(path)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    for name in ("name", "address", "nat-mac", "cluster-mac"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--key", type=Path, required=True, help="public ssh key")
    given = parser.parse_args(argv)
    write_image(given.out, seed_files(name=given.name, address=given.address, nat_mac=given.nat_mac, cluster_mac=given.cluster_mac,
                                      key=given.key.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
