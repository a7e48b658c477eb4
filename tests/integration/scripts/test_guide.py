"""The guide from a laptop to many machines: its commands are executed, or their options looked up where they need root and Debian."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.vbox.computer import Computer

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "scripts" / "README.md").read_text()


def commands_of(kind: str) -> list[str]:
    blocks = re.findall(rf"^```sh {kind}\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    return [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]


def check_six_machines(computer: Computer) -> None:
    """Fixed addresses, linked clones, one core and little memory each, the balancers at ports of this computer."""
    names = [f"myqueue-{kind}-{number}" for kind in ("manager", "broker") for number in (1, 2, 3)]
    assert {"myqueue-base": "poweroff", **dict.fromkeys(names, "running")} == computer.states()
    machines = computer.world["vms"]
    assert all(machines[name]["parent"] == ["myqueue-base", "prepared"] and machines[name]["groups"] == "/myqueue" for name in names)
    assert {(machines[name]["cpus"], machines[name]["memory"]) for name in names} == {(1, 1024)}
    forwards = [machines[f"myqueue-manager-{number}"]["forwards"] for number in (1, 2, 3)]
    assert [[f"balancer,tcp,127.0.0.1,{port},,9092"] for port in (9092, 9093, 9094)] == forwards
    assert {"vboxnet0": "192.168.61.1"} == computer.world["interfaces"]
    assert len({nic for vm in machines.values() for key, nic in vm["nics"].items() if key.startswith("mac")}) == 2 * len(machines)


def check_provisioning(computer: Computer) -> None:
    """Each machine by ssh with its own role and address, the managers' addresses everywhere; no secret on any command line."""
    told = {call["machine"]: call["command"] for call in computer.by_ssh() if "node.sh --role" in call["command"]}
    managers = "--managers 192.168.61.11,192.168.61.12,192.168.61.13 "
    assert 6 == len(told)
    for number in (1, 2, 3):
        assert f"--role manager,balancer --number {number} --address 192.168.61.1{number} {managers}" in told[f"myqueue-manager-{number}"]
        assert f"--role broker --number {number} --address 192.168.61.10{number} {managers}" in told[f"myqueue-broker-{number}"]
    secrets = [file.read_text() for file in (computer.home / "secrets").iterdir()]
    everything = [*map(str, computer.calls()), *(call["command"] for call in computer.by_ssh())]
    assert 3 == len(secrets)
    assert not [word for word in everything for secret in secrets if secret in word]
    assert all((computer.home / name).stat().st_mode & 0o077 == 0 for name in ("key", "secrets", "secrets/token"))


@pytest.mark.timeout(150)
def test_the_laptop_s_commands_run_one_after_the_other(tmp_path: Path):
    """As they stand, on a computer with the stand-in for VirtualBox; the first makes six machines, the last one leaves nothing."""
    computer = Computer(tmp_path)
    commands = commands_of("laptop")
    assert len(commands) > 8
    for command in commands:
        script, *words = shlex.split(command)
        assert script == "scripts/vbox/cluster.sh"
        computer.must(*(computer.image if word.endswith("-amd64.raw") else word for word in words))
        if words[0] == "up":
            check_six_machines(computer)
            check_provisioning(computer)
    assert {} == computer.states()


@pytest.mark.parametrize("command", commands_of("server"))
def test_a_server_s_command_has_the_options_that_it_is_given(command: str):
    """The script is there, and its help names every option."""
    words = [word for word in shlex.split(re.sub(r"^(\w+=\$\([^)]*\) )+", "", command)) if word != "python3"]
    script = ROOT / words[0]
    run = ["python3", script] if script.suffix == ".py" else [script]
    told = subprocess.run([*run, "--help"], capture_output=True, text=True, timeout=30)
    assert told.returncode == 0, told.stderr
    options = {word for word in words[1:] if word.startswith("--")}
    assert options <= set(re.findall(r"--[a-z-]+", told.stdout))


@pytest.mark.parametrize("script", ["scripts/install-db", "scripts/provision/node.sh", "scripts/provision/backup", "scripts/rehearse"])
def test_wrong_usage_ends_with_2_before_anything_is_looked_at(script: str):
    done = subprocess.run([ROOT / script, "--nonsense"], capture_output=True, text=True, timeout=30)
    assert (2, True) == (done.returncode, "usage:" in done.stderr)


@pytest.mark.parametrize(("words", "sentence"), [
    (("--role", "king"), "broker, manager or balancer"), (("--role", "broker"), "--address is missing"),
    (("--role", "broker", "--address", "x"), "an IPv4 address"), (("--role", "broker", "--address", "10.0.0.1"), "--managers is missing"),
    (("--role", "manager", "--address", "10.0.0.9", "--managers", "10.0.0.1"), "--managers does not have 10.0.0.9"),
    (("--role", "broker", "--address", "10.0.0.1", "--managers", "10.0.0.1", "--number", "0"), "a number from 1"),
])
def test_a_node_that_cannot_be_is_refused_in_a_sentence(words: tuple[str, ...], sentence: str):
    done = subprocess.run([ROOT / "scripts" / "provision" / "node.sh", *words], capture_output=True, text=True, timeout=30)
    assert (2, True) == (done.returncode, sentence in done.stderr), done.stderr


def test_secrets_are_made_once_and_for_their_owner_only(tmp_path: Path):
    script = ROOT / "scripts" / "provision" / "new-secrets"
    made = []
    for _ in range(2):
        subprocess.run([script, tmp_path / "s"], check=True, timeout=20)
        made.append({path.name: path.read_text() for path in (tmp_path / "s").iterdir()})
    assert made[0] == made[1]
    assert {"secret": 64, "token": 64, "reader": 64} == {name: len(text) for name, text in made[0].items()}
    assert len(set(made[0].values())) == 3
    assert {0} == {path.stat().st_mode & 0o077 for path in [tmp_path / "s", *(tmp_path / "s").iterdir()]}


def test_a_segment_is_archived_once_and_another_of_its_name_is_refused(tmp_path: Path):
    """PostgreSQL may hand over the same one again after a crash; that is a success. Nothing half-written is ever under its name."""
    script, segment, archive = ROOT / "scripts" / "provision" / "archive-wal", tmp_path / "segment", tmp_path / "archive"
    archive.mkdir()
    segment.write_bytes(b"log" * 1_000)
    for _ in range(2):
        subprocess.run([script, segment, archive / "0001"], check=True, timeout=20)
    assert segment.read_bytes() == (archive / "0001").read_bytes()
    segment.write_bytes(b"another")
    done = subprocess.run([script, segment, archive / "0001"], capture_output=True, text=True, timeout=20)
    assert (1, True) == (done.returncode, "another content" in done.stderr)
    assert ["0001"] == [path.name for path in archive.iterdir()]
