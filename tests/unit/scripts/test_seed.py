"""The seed image of a virtual machine."""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
from pathlib import Path

import pycdlib
import pytest

SEED = Path(__file__).parents[3] / "scripts" / "vbox" / "seed.py"
specification = importlib.util.spec_from_file_location("seed", SEED)
assert specification and specification.loader
seed = importlib.util.module_from_spec(specification)
specification.loader.exec_module(seed)

GIVEN = {"name": "myqueue-broker-1", "address": "192.168.61.101/24", "nat_mac": "0800273D0165", "cluster_mac": "0800273D0265",
         "key": "ssh-ed25519 AAAA me\n"}


def test_the_image_holds_what_cloud_init_reads_under_its_own_names(tmp_path: Path):
    """Label CIDATA, three files; read back from the image."""
    files = seed.seed_files(**GIVEN)
    seed.write_image(tmp_path / "seed.iso", files)
    image = pycdlib.PyCdlib()
    image.open(str(tmp_path / "seed.iso"))
    assert b"CIDATA" == image.pvd.volume_identifier.strip()
    read = {}
    for name in ("meta-data", "user-data", "network-config"):
        content = io.BytesIO()
        image.get_file_from_iso_fp(content, rr_path=f"/{name}")
        read[name] = content.getvalue().decode()
    image.close()
    assert files == read
    assert [tmp_path / "seed.iso"] == list(tmp_path.iterdir())
    assert 0 == (tmp_path / "seed.iso").stat().st_mode & 0o077


def test_the_key_is_the_only_way_in_and_the_cards_are_told_apart():
    files = seed.seed_files(**GIVEN)
    assert "ssh_pwauth: false" in files["user-data"] and "lock_passwd: true" in files["user-data"]
    assert "- ssh-ed25519 AAAA me\n" in files["user-data"]
    network = files["network-config"]
    assert network.index("08:00:27:3d:01:65") < network.index("dhcp4") < network.index("08:00:27:3d:02:65")
    assert 'addresses: ["192.168.61.101/24"]' in network


@pytest.mark.parametrize("mac", ["", "08:00:27:3d:01:65", "0800273D016", "0800273D016G"])
def test_a_malformed_hardware_address_is_refused(mac: str):
    with pytest.raises(ValueError, match="hardware address"):
        seed.with_colons(mac)


def test_the_module_is_a_command(tmp_path: Path):
    done = subprocess.run([sys.executable, SEED, "--help"], capture_output=True, text=True, timeout=20)
    assert (0, True) == (done.returncode, "--cluster-mac" in done.stdout)
