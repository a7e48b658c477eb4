"""Every shell script passes shellcheck, and what runs on a person's own computer keeps to the bash that macOS has."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHELLCHECK = Path(sys.executable).with_name("shellcheck")
SOURCE_PATHS = [word for path in ("SCRIPTDIR", "SCRIPTDIR/..", "SCRIPTDIR/../..") for word in ("-P", path)]
# What bash 3.2 does not know, or takes otherwise: associative arrays, name references, case changes, printf %(…)T and others.
NEWER = re.compile(r"declare -[A-Za-z]*[An]|local -[A-Za-z]*[An]\b|\bmapfile\b|\breadarray\b|\$\{[\w@*\[\]]+(,,?|\^\^?)\}|\|&|&>>|\bcoproc\b"
                   r"|\bwait -n\b|%\([^)]*\)T|\$\{[\w\[\]@*]+@[QEPAaUuLK]\}|\$EPOCH|\binherit_errexit\b|\[\[ -v ")
# An empty array is "unbound" to bash before 4.4: it is written ${name+"${name[@]}"}.
BARE_ARRAY = re.compile(r'(?<!\+)"\$\{\w+\[@\]\}"')


def shell_scripts() -> list[Path]:
    """Whatever begins as a bash script does, or says that it is sourced by one."""
    found = []
    for path in sorted([*(ROOT / "scripts").rglob("*"), *(ROOT / ".ci").rglob("*"), *(ROOT / "tests").rglob("*.sh")]):
        if path.is_file() and path.suffix not in (".py", ".pyc") and re.match(rb"#!.*\b(ba)?sh\b|# Sourced by", path.read_bytes()[:80]):
            found.append(path)
    return found


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_there_is_no_finding():
    """In one run over all of them; sourced files are followed."""
    done = subprocess.run([SHELLCHECK, "-x", "-s", "bash", *SOURCE_PATHS, *shell_scripts()], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stdout) == (0, "")


def test_a_finding_would_be_found(tmp_path: Path):
    """The checker itself works: an unquoted expansion is one."""
    (tmp_path / "bad").write_text("#!/usr/bin/env bash\nls $1\n")
    done = subprocess.run([SHELLCHECK, tmp_path / "bad"], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1
    assert "SC2086" in done.stdout


def test_shell_scripts_are_recognised_by_their_first_line():
    """Nothing under scripts/ that is executable escapes the check."""
    executable = {path for path in (ROOT / "scripts").rglob("*") if path.is_file() and path.stat().st_mode & 0o100}
    assert {name(path) for path in executable - set(shell_scripts())} == set()


@pytest.mark.parametrize("script", [path for path in shell_scripts() if name(path).startswith(("scripts/vbox/", "scripts/setup.sh"))], ids=name)
def test_scripts_for_a_person_s_computer_keep_to_bash_3_2(script: Path):
    """macOS ships bash 3.2."""
    lines = [f"{number}: {line}" for number, line in enumerate(script.read_text().splitlines(), 1)
             if not line.lstrip().startswith("#") and (NEWER.search(line) or BARE_ARRAY.search(line))]
    assert lines == []


# With pipefail, a reader that ends before its writer makes the pipe fail at times: the writer gets SIGPIPE.
EARLY = re.compile(r"\|\s*(grep\s+(-\w*[qm]|--quiet)|head\b|sed\b[^|]*[;}]\s*q\b)|grep\b[^|]*>\s*/dev/null")


ON_MACHINES = ("scripts/vbox/", "scripts/provision/", "scripts/install-db")


@pytest.mark.parametrize("script", [path for path in shell_scripts() if name(path).startswith(ON_MACHINES)], ids=name)
def test_no_pipe_ends_in_a_reader_that_stops_early(script: Path):
    """Where the outcome of a pipe decides, such a reader is a race that is lost under load only."""
    lines = [f"{number}: {line}" for number, line in enumerate(script.read_text().splitlines(), 1) if EARLY.search(line)]
    assert lines == []
