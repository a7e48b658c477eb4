"""The provisioning's steps in a shell of their own, with stand-ins for what only a machine has: cut short, repeated, kept apart."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

PROVISION = Path(__file__).parents[3] / "scripts" / "provision"


def escaped(path: object) -> str:
    """As a word of a shell, also between single quotes of an outer one: the project may lie in a path with a space."""
    return re.sub(r"([^\w/.-])", r"\\\1", str(path))


HERE = escaped(PROVISION)
TIMEOUT_SECONDS = 30


def shell(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script behind ensure.sh, as the provisioning's programs are; ``folder`` is the current one and takes what it keeps."""
    begin = f"""set -euo pipefail
. {HERE}/ensure.sh
ensure_program=test ensure_lock={folder}/lock ensure_started_folder={folder}/started
"""
    return subprocess.run(["bash", "-c", begin + script], cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)


def must(folder: Path, script: str) -> str:
    done = shell(folder, script)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# --- services ---

# systemctl writes down what it is told; the unit is active and enabled from its first restart on.
SERVICES = """
here=/nowhere role=broker start=yes current={folder}/current
. {provision}/services.sh
units={folder} settings={folder}
ensure_is_systemd() {{ true; }}
run_journal() {{ true; }}
wait_for_services() {{ true; }}
systemctl() {{
    case $1 in
        restart) [ -z "${{cut_short:-}}" ] || kill -9 $$; echo restart ;;
        -q) [ -e {folder}/started/broker ] ;;
    esac
}}
"""


def run_services(folder: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    return shell(folder, SERVICES.format(folder=folder, provision=HERE) + before + "\nrun_services\n")


@pytest.mark.parametrize("changed", ["broker.env", "broker.local.env", "myqueue-broker.service", "secret", "current"])
def test_a_restart_that_a_cut_short_run_owes_is_made_by_the_next(tmp_path: Path, changed: str):
    """The file is changed already when the second run looks: what counts is what the service was started with."""
    for name in ("broker.env", "myqueue-broker.service", "secret"):
        (tmp_path / name).write_text("as before")
    (tmp_path / "current").symlink_to("release-1")
    assert "restart\n" == run_services(tmp_path).stdout
    assert "" == run_services(tmp_path).stdout, "nothing changed"
    if changed == "current":
        (tmp_path / "current").unlink()
        (tmp_path / "current").symlink_to("release-2")
    else:
        (tmp_path / changed).write_text("changed")
    assert run_services(tmp_path, "cut_short=yes").returncode == -9
    assert "is started anew" in run_services(tmp_path, "ensure_check=yes").stderr, "a check says so too"
    assert "restart\n" == run_services(tmp_path).stdout
    assert "" == run_services(tmp_path).stdout


def test_a_check_counts_a_password_that_is_missing(tmp_path: Path):
    done = shell(tmp_path, "ensure_check=yes; ensure_password ./missing; ensure_end")
    assert (1, "test: FAILED: 1 differences") == (done.returncode, done.stderr.splitlines()[-1])


# --- the code and its packages ---

NAMES = """
project={project}
. {provision}/install-code.sh
python3() {{ case $1 in -c) echo "{python}" ;; esac; }}
name_code
echo "$venv $release"
"""


def names(folder: Path, python: str) -> list[str]:
    return must(folder, NAMES.format(project=escaped(PROVISION.parents[1]), provision=HERE, python=python)).split()


def test_another_python_of_the_machine_makes_packages_and_release_anew(tmp_path: Path):
    """A release leads to its packages, so that it may not stay when they change: after an upgrade of Debian they are for a Python that is gone."""
    before, again, newer = (names(tmp_path, python) for python in ("cpython-311 3 11 2 /usr", "cpython-311 3 11 2 /usr", "cpython-313 3 13 5 /usr"))
    assert before == again
    assert before[0] != newer[0] and before[1] != newer[1]


# --- going back ---

# Every call that changes something may be the last: the shell kills itself before call number `cut`. A server is folders with a file `who`.
RESTORE = """
data={folder}/server folder={folder} state={folder}/state wanted='monday'
. {provision}/going-back.sh
calls=0
step() {{ calls=$((calls + 1)); [ "$calls" != "{cut}" ] || kill -9 $$; }}
for name in mv rm; do eval "$name() {{ step; command $name \\"\\$@\\"; }}"; done
sync() {{ step; }}
check_backup() {{ [ -d {folder}/base ]; }}
copy_backup() {{ step; mkdir "$data.new"; step; cp {folder}/base/who "$data.new/who"; }}
services() {{
    step
    if [ "$1" = start ]; then [ ! -e "$restoring" ]; cat "$data/who" >{folder}/serves; else command rm -f {folder}/serves; fi
    step
}}
stop_server() {{ step; }}
start_server() {{ step; [ -e "$data/who" ]; }}
settle_identities() {{ step; echo "a new disk" >"$data/who"; step; }}
put_back
echo "$calls" >{folder}/calls
"""


def restore(folder: Path, cut: int = 0) -> int:
    return shell(folder, RESTORE.format(folder=folder, provision=HERE, cut=cut)).returncode


def server_of(folder: Path) -> Path:
    for name, who in (("server", "the old disk"), ("base", "a copy of the old disk")):
        (folder / name).mkdir(parents=True)
        (folder / name / "who").write_text(who)
    (folder / "serves").write_text("the old disk")
    return folder


@pytest.mark.timeout(240)
def test_a_restore_may_be_cut_short_anywhere_and_is_run_again(tmp_path: Path):
    """The old data stay, the services get the new disk only, and at no moment may they start on a copy that calls itself the old one."""
    assert restore(server_of(tmp_path / "smooth")) == 0
    calls = int((tmp_path / "smooth" / "calls").read_text())
    assert calls > 15
    for cut in range(1, calls + 1):
        folder = server_of(tmp_path / f"cut-{cut}")
        assert restore(folder, cut) == -9
        who, state = folder / "server" / "who", folder / "state"
        copied = who.exists() and who.read_text() == "a copy of the old disk"
        assert not copied or (state / "restoring").exists(), cut
        assert restore(folder) == 0, cut
        assert "the old disk" == (folder / "server.before-restore" / "who").read_text()
        assert {"a new disk\n"} == {who.read_text(), (folder / "serves").read_text()}
        assert [] == list(state.iterdir())


def test_after_a_restore_of_the_whole_cluster_services_stay_stopped(tmp_path: Path):
    """They may start when every machine is back at that moment: that is known to the operator only. Alone they are started."""
    script = (PROVISION / "backup").read_text()
    services = script[script.index("services() {"):script.index("recovery_settings() {")]
    tools = "ensure_is_systemd() { true; }; systemctl() { echo $*; }; [() { command [ $1 != -f ] || return 0; command [ \"$@\"; }\n"
    alone, whole = (must(tmp_path, f"whole={value}; {tools}{services}\nservices stop; services start") for value in ("''", "yes"))
    assert ["stop myqueue-broker.service", "stop myqueue-manager.service"] == whole.splitlines()
    assert [*whole.splitlines(), "start myqueue-broker.service", "start myqueue-manager.service"] == alone.splitlines()


def test_a_second_restore_does_not_throw_the_old_data_away(tmp_path: Path):
    """They are deleted by a person only."""
    folder = server_of(tmp_path / "a")
    assert restore(folder) == 0
    assert restore(folder) == 1
    assert "the old disk" == (folder / "server.before-restore" / "who").read_text()


# --- one run at a time, and a last line ---

def test_two_runs_are_kept_apart_and_a_killed_one_leaves_no_lock(tmp_path: Path):
    """A script that the holder calls has the lock already; a server that it starts has not."""
    killed = shell(tmp_path, f"""ensure_alone
bash -c 'set -euo pipefail; . {HERE}/ensure.sh; ensure_lock={tmp_path}/lock; ensure_lock_seconds=0; ensure_alone' && echo has it
unlocked bash -c 'sleep 300 >/dev/null 2>&1 & echo $! >server'
kill -9 $$""")
    try:
        assert (-9, "has it\n") == (killed.returncode, killed.stdout), killed.stderr
        assert "" == must(tmp_path, "ensure_lock_seconds=0 ensure_alone; ensure_alone")
    finally:
        os.kill(int((tmp_path / "server").read_text()), signal.SIGTERM)
    held = shell(tmp_path, f"ensure_alone; bash -c '. {HERE}/ensure.sh; ensure_lock={tmp_path}/lock; ensure_lock_seconds=0; ensure_alone' 8>&-")
    assert (1, True) == (held.returncode, "FAILED: another run is at work on this machine" in held.stderr)


@pytest.mark.parametrize(("script", "last"), [("ensure_end", "test: done: 0 changes"), ("fail 'no room'", "test: FAILED: no room"),
                                              ("false", "test: FAILED before its end: run it again, it goes on from there")])
def test_the_last_line_says_the_result(tmp_path: Path, script: str, last: str):
    """Also where a step fails of which nobody thought."""
    done = shell(tmp_path, script)
    assert (last, "FAILED" in last) == (done.stderr.splitlines()[-1], done.returncode == 1)
