"""The VirtualBox scripts against a strict stand-in: what they make, what they leave alone, and every call failing once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.long import LONG
from tests.support.vbox.computer import Computer
from tests.support.vbox.vboxmanage import COMMANDS
from tests.support.waiting import wait_until

MODES = ("before", "after") if LONG else ("after",)  # a call that fails has had its effect, or not
SMALL = ("--brokers", 1, "--managers", 1, "--together", "--memory", 64)  # the base and one machine
CALLS_MAX = 200


@pytest.fixture
def computer(tmp_path: Path) -> Computer:
    return Computer(tmp_path)


def up(computer: Computer, *more: object, **environment: str) -> str:
    return computer.must("up", "--image", computer.image, *SMALL, *more, **environment)


def shape(computer: Computer) -> dict[str, object]:
    """All that matters of a world, without what is random."""
    hidden = ("uuid",)
    return {**computer.world, "media": sorted(computer.world["media"]),
            "vms": {name: {key: value for key, value in vm.items() if key not in hidden} for name, vm in computer.world["vms"].items()}}


def fail_every_call_once(computer: Computer, mode: str) -> int:
    """Run up until it succeeds, then destroy; how often they failed, every time another call."""
    failures = 0
    for words, at_the_end in ((("up", "--image", computer.image, *SMALL), smooth_shape), (("destroy", "--yes"), empty_shape)):
        while (done := computer.run(*words, FAKE_VBOX_FAIL=f"once:{mode}")).returncode:
            failures += 1
            assert failures < CALLS_MAX, done.stderr
            assert done.returncode == 1, done.stderr
            assert done.stderr.strip(), "a failure says something"
        computer.must(*words)  # once more: there is nothing left to do
        assert at_the_end(computer) == shape(computer)
    assert [] == sorted(path.name for path in computer.home.iterdir())
    return failures


def empty_shape(_computer: Computer) -> dict[str, object]:
    return {"vms": {}, "media": [], "interfaces": {}, "networks": {}}


def smooth_shape(computer: Computer) -> dict[str, object]:
    """What an up without any failure leads to, on another computer with the same paths."""
    smooth = Computer(computer.world_folder.parent / "smooth")
    up(smooth)
    return eval(repr(shape(smooth)).replace(f"{computer.world_folder.parent}/smooth/", f"{computer.world_folder.parent}/"))


@pytest.mark.timeout(200)
def test_every_call_fails_once(tmp_path: Path):
    """Whatever call fails, with its effect (as after a power cut) or, in the long form, without.

    The next up goes on, and the end is that of a smooth one.
    """
    with ThreadPoolExecutor(2) as pool:
        calls = list(pool.map(lambda mode: fail_every_call_once(Computer(tmp_path / mode), mode), MODES))
    assert min(calls) > 20


@pytest.mark.timeout(3_600 if LONG else 60)
def test_call_n_fails(tmp_path: Path):
    """From a fresh computer each time: for all n in the long form, for a few otherwise."""
    smooth = Computer(tmp_path / "smooth")
    up(smooth)
    calls = len(smooth.calls())
    for number in range(1, calls + 1) if LONG else (calls // 3,):
        for mode in ("before", "after") if LONG else ("after",):
            computer = Computer(tmp_path / f"{mode}-{number}")
            failed = computer.run("up", "--image", computer.image, *SMALL, FAKE_VBOX_FAIL=f"{number}:{mode}")
            up(computer)
            assert repr(shape(computer)) == repr(shape(smooth)).replace(str(tmp_path / "smooth"), str(tmp_path / f"{mode}-{number}")), failed.stderr


def test_nobody_else_s_machines_and_networks_are_touched(computer: Computer):
    """Not another group's machine of our name, not another interface; up refuses, destroy passes by."""
    foreign = {"uuid": "u", "state": "running", "groups": "/work", "folder": "/nowhere", "snapshots": {}, "nics": {}, "memory": 1, "cpus": 1,
               "controllers": {}, "attached": {}, "forwards": [], "parent": None}
    computer.world = {**computer.world, "vms": {"myqueue-broker-1": foreign, "windows": foreign}, "interfaces": {"vboxnet0": "192.168.56.1"}}
    done = computer.run("up", "--image", computer.image, *SMALL)
    assert done.returncode == 1
    assert "myqueue-broker-1 is not in the group /myqueue" in done.stderr
    assert "is left alone" in computer.must("destroy", "--yes")
    assert {"myqueue-broker-1": foreign, "windows": foreign} == computer.world["vms"]
    assert {"vboxnet0": "192.168.56.1"} == computer.world["interfaces"]


def test_nodes_are_added_and_removed_and_data_are_not_deleted(computer: Computer):
    """What the cluster refuses to let go stays a machine; a killed machine is off at once."""
    up(computer)
    computer.must("add-broker")
    assert ["myqueue-base", "myqueue-broker-1", "myqueue-broker-2"] == sorted(computer.states())
    assert "broker-2             running    192.168.61.102   broker" in computer.must("status")
    computer.must("ssh", "broker-2", "uptime")
    assert {"machine": "myqueue-broker-2", "command": "uptime", "received": 0} == computer.by_ssh()[-1]
    refused = computer.run("remove-broker", "broker-2", FAKE_SSH_FAIL="remove_broker.py")
    assert refused.returncode == 1
    assert "running" == computer.states()["myqueue-broker-2"]
    assert computer.run("remove-broker", "broker-1").returncode == 1, "a manager is no broker alone"
    computer.must("kill", "broker-2")
    assert "poweroff" == computer.states()["myqueue-broker-2"]
    assert computer.run("remove-broker", "broker-2", FAKE_VBOX_FAIL="unregistervm:after").returncode == 1, "cut short: its machine is gone"
    computer.must("remove-broker", "broker-2")
    assert ["myqueue-base", "myqueue-broker-1"] == sorted(computer.states())
    assert computer.run("status").stdout.count("broker-") == 1


def test_add_broker_cut_short_goes_on_with_the_same_broker(computer: Computer):
    """Repeated, it does not add another one."""
    up(computer)
    for failing in ("clonevm", "startvm"):
        assert computer.run("add-broker", FAKE_VBOX_FAIL=f"{failing}:after").returncode == 1
    computer.must("add-broker")
    assert ["myqueue-base", "myqueue-broker-1", "myqueue-broker-2"] == sorted(computer.states())
    computer.must("add-broker")
    assert "myqueue-broker-3" in computer.states()


def test_an_upgrade_waits_for_each_machine(computer: Computer):
    """The next one's services are not restarted before the cluster is well again."""
    up(computer, "--brokers", 2)
    (computer.world_folder / "ssh").unlink()
    up(computer, "--brokers", 2)
    told = ["provision" if "node.sh" in call["command"] else "health" for call in computer.by_ssh()
            if "node.sh" in call["command"] or "myqueue health" in call["command"]]
    assert ["health", "provision", "health", "provision", "health", "health"] == told


def test_machines_of_which_only_some_went_back_do_not_start(computer: Computer):
    """A restore that was cut short is run again first."""
    up(computer, "--brokers", 2)
    computer.must("snapshot", "monday")
    assert computer.run("restore", "monday", FAKE_VBOX_FAIL="restore:after").returncode == 1
    for words in (("up",), ("start", "broker-1"), ("add-broker",)):
        refused = computer.run(*words)
        assert (1, True) == (refused.returncode, "the restore of monday was cut short" in refused.stderr)
    computer.must("restore", "monday")
    assert {"running"} == set(computer.states().values()) - {"poweroff"}
    computer.must("start", "broker-1")


def test_waits_are_bounded_by_the_clock(computer: Computer):
    """Not by how often is asked: one question may take as long as the whole wait."""
    done = computer.run("up", "--image", computer.image, *SMALL, FAKE_SSH_FAIL="true", FAKE_SSH_SECONDS="2", MYQUEUE_VBOX_WAIT_SECONDS="2")
    assert done.returncode == 1
    assert ["true"] == [call["command"] for call in computer.by_ssh()]
    assert "vbox: up: FAILED: myqueue-base does not answer at 192.168.61.9 after 2 s" in done.stderr.splitlines()[-1]


def test_two_commands_are_kept_apart_and_a_killed_one_leaves_no_lock(computer: Computer):
    """Nor do the machines that it started hold it."""
    working = computer.start("up", "--image", computer.image, *SMALL, FAKE_SSH_FAIL="true", FAKE_SSH_SECONDS="30")
    wait_until(lambda: (computer.world_folder / "ssh").exists(), timeout_seconds=30, what="the first question by ssh")
    refused = computer.run("up", "--image", computer.image, *SMALL)
    assert (1, True) == (refused.returncode, "another command is at work" in refused.stderr)
    working.kill()
    working.wait(10)
    up(computer)


def test_the_last_line_says_the_result(computer: Computer):
    """Of every command, on standard error."""
    assert "vbox: up: done" == up(computer).splitlines()[-1]
    for words, last in ((("down",), "done"), (("restore", "nothing"), "FAILED: there is no snapshot nothing"), (("destroy", "--yes"), "done")):
        assert f"vbox: {words[0]}: {last}" == computer.run(*words).stderr.splitlines()[-1]


def test_a_snapshot_is_of_all_machines_stopped_and_is_restored_together(computer: Computer):
    """Cut short, it is begun anew; another set of machines is refused."""
    up(computer)
    assert computer.run("snapshot", "monday", FAKE_VBOX_FAIL="take:after").returncode == 1
    computer.must("snapshot", "monday")
    assert ["snapshot", "myqueue-broker-1", "delete", "monday"] in computer.calls()
    assert {"state": "poweroff"} == computer.world["vms"]["myqueue-broker-1"]["snapshots"]["monday"]
    assert "running" == computer.states()["myqueue-broker-1"]
    assert "monday\n" == computer.run("snapshots").stdout
    assert computer.run("snapshot", "monday").returncode == 1
    computer.must("restore", "monday")
    assert ["snapshot", "myqueue-broker-1", "restore", "monday"] in computer.calls()
    assert "running" == computer.states()["myqueue-broker-1"]
    computer.must("add-broker")
    assert "other machines" in computer.run("restore", "monday").stderr


def test_on_macos_the_network_is_a_host_only_network(tmp_path: Path):
    """VirtualBox 7 has no host-only adapters there."""
    mac = Computer(tmp_path, system="Darwin")
    up(mac)
    assert "192.168.61.1" == mac.world["networks"]["myqueue"]["lower-ip"]
    assert ("hostonlynet", "myqueue") == tuple(mac.world["vms"]["myqueue-broker-1"]["nics"][key] for key in ("nic2", "host-only-net2"))
    mac.must("destroy", "--yes")
    assert {} == mac.world["networks"]


def test_an_installer_is_run_unattended_and_once(computer: Computer):
    """Debian's installer, with cloud-init in the end, so that all that follows is the same."""
    iso = computer.image.with_suffix(".iso")
    iso.write_text("an installer")
    computer.must("up", "--image", iso, *SMALL)
    [install] = [call for call in computer.calls() if call[0] == "unattended"]
    assert any("cloud-init" in word for word in install)
    assert not any((computer.home / "installer-password").read_text() in word for word in install)


@pytest.mark.parametrize(("words", "sentence"), [
    ((), "a command is missing"), (("explode",), "there is no command explode"), (("up",), "--image FILE is needed"),
    (("up", "--image", "/nowhere.raw"), "cannot be read"), (("up", "--image", "a.zip"), ".qcow2"), (("up", "--managers", "2"), "1, 3 or 5"),
    (("up", "--network", "10.0.0"), "which VirtualBox allows"), (("up", "--brokers", "x"), "a number"), (("destroy",), "destroy --yes"),
])
def test_wrong_usage_is_a_sentence_and_2(computer: Computer, words: tuple[str, ...], sentence: str):
    done = computer.run(*words)
    assert (2, True) == (done.returncode, sentence in done.stderr), done.stderr


def test_a_computer_that_cannot_carry_it_is_told_before_anything_is_made(tmp_path: Path):
    """Another processor, too little memory, no VirtualBox."""
    arm = Computer(tmp_path / "arm", system="Darwin", machine="arm64")
    assert "x86-64" in arm.run("up", "--image", arm.image).stderr
    small = Computer(tmp_path / "small")
    refused = small.run("up", "--image", small.image, "--memory", 10_000_000)
    assert (1, True) == (refused.returncode, "MB of memory" in refused.stderr)
    assert {} == small.states()
    assert "up makes one" in small.run("status").stderr


def test_every_subcommand_of_the_stand_in_is_used():
    """What the scripts call is what the stand-in knows, no more and no less."""
    text = "".join(path.read_text() for path in (Path(__file__).parents[3] / "scripts" / "vbox").glob("*.sh"))
    assert [] == [name for name in COMMANDS if not any(f"{door} {name} " in text for door in ("vbox", "vbox_says", "VBoxManage"))]
