"""The commands under scripts/: help, usage, and the environment they make by themselves."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = sorted(path for path in (ROOT / "scripts").iterdir() if path.is_file() and path.suffix not in (".sh", ".md"))
TIMEOUT_SECONDS = 50


def run(*command: object, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYQUEUE_PYTHON")}
    return subprocess.run([str(part) for part in command], cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_SECONDS,
                          stdin=subprocess.DEVNULL, env={**variables, **environment})


@pytest.mark.parametrize("command", COMMANDS, ids=lambda path: path.name)
def test_every_command_can_be_run_and_has_help(command: Path, tmp_path: Path):
    """Executable, with ``--help`` that ends well, from any current folder."""
    assert command.stat().st_mode & stat.S_IXUSR
    done = run(command, "--help", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["test", "nonsense"], ["test", "support"], ["test", "campaign"], ["test", "fuzz"], ["test", "stress"],
                                   ["test", "bench"], ["check", "--nonsense"], ["cluster", "nonsense"], ["fuzz", "--requests", "0"],
                                   ["fuzz", "http://example.com:9092"], ["fuzz", "127.0.0.1:9092"],
                                   ["stress", "--threads", "0"], ["stress", "--faces", "all"], ["stress", "ftp://127.0.0.1:1"], ["bench", "nonsense"],
                                   ["bench", "--peers", "kafka"], ["bench", "--rounds", "0"], ["soak", "--hours", "0"]])
def test_wrong_usage_ends_with_2(words: list[str], tmp_path: Path):
    """A word that is not known is usage, and the usage is shown."""
    done = run(ROOT / "scripts" / words[0], *words[1:], folder=tmp_path)
    assert done.returncode == 2
    assert "usage:" in done.stderr


def test_a_failing_test_fails_the_command(project: Path):
    """``scripts/test`` says FAILED and ends with 1; what follows ``--`` goes to pytest."""
    (project / "tests" / "unit").mkdir(parents=True)
    (project / "tests" / "unit" / "test_it.py").write_text("def test_good(): pass\n\ndef test_bad(): assert False\n")
    make_interpreter_of_this_run(project)
    assert run(project / "scripts" / "test", "unit", MYQUEUE_TEST_WORKERS="0").returncode == 1
    assert run(project / "scripts" / "test", MYQUEUE_TEST_WORKERS="2").stdout.splitlines()[-1].startswith("test: FAILED in unit")
    good = run(project / "scripts" / "test", "unit", "--", "-k", "good")
    assert (good.returncode, good.stdout.splitlines()[-1].startswith("test: all passed")) == (0, True), good.stdout + good.stderr
    assert run(project / "scripts" / "test", "--", "-k", "none_of_them").returncode == 1


# --- setup.sh, in a project of its own that needs no package ---


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project in a path with a space, with our scripts and without requirements."""
    root = tmp_path / "a project"
    (root / "scripts").mkdir(parents=True)
    for name in ("setup.sh", "test"):
        shutil.copy(ROOT / "scripts" / name, root / "scripts" / name)
    (root / "requirements.txt").write_text("# nothing\n")
    use = root / "scripts" / "use"
    use.write_text('#!/usr/bin/env bash\nset -euo pipefail\n. "$(dirname -- "${BASH_SOURCE[0]}")/setup.sh"\n'
                   '"$PYTHON" -c "import sys, os; print(sys.prefix, os.getcwd(), sep=chr(10))"\n')
    use.chmod(0o755)
    return root


def make_interpreter_of_this_run(project: Path) -> None:
    """A .venv whose Python is the one that runs this test, pytest included."""
    run(sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", project / ".venv")
    site = next((project / ".venv" / "lib").glob("python*")) / "site-packages"
    (site / "parent.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")) + "\n")


def test_setup_makes_the_environment_once(project: Path, tmp_path: Path):
    """Of two commands at once one makes .venv and says so, the other waits; a later one is silent; all run where they were called."""
    both = [subprocess.Popen([project / "scripts" / "use"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(2)]
    said = [one.communicate(timeout=TIMEOUT_SECONDS) for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    assert [out.splitlines() for out, _ in said] == [[str(project / ".venv"), str(tmp_path)]] * 2
    assert [errors.count("setup: making") for _, errors in said] in ([0, 1], [1, 0])
    assert sum("setup: done" in errors for _, errors in said) == 1
    later = run(project / "scripts" / "use", folder=tmp_path)
    assert (later.returncode, later.stdout, later.stderr) == (0, said[0][0], "")


def test_setup_redoes_a_half_made_environment(project: Path):
    """An interrupted set-up is begun anew."""
    (project / ".venv" / "bin").mkdir(parents=True)
    (project / ".venv" / ".making").touch()
    (project / ".venv" / "bin" / "python").write_text("rubbish")
    done = run(project / "scripts" / "use")
    assert done.returncode == 0, done.stderr
    assert "it is not whole" in done.stderr
    assert not (project / ".venv" / ".making").exists()


def test_setup_takes_an_environment_that_pip_made(project: Path):
    """A .venv that holds what is needed is only verified."""
    make_interpreter_of_this_run(project)
    done = run(project / "scripts" / "use")
    assert (done.returncode, done.stderr) == (0, "")
    assert (project / ".venv" / ".stamp").exists()


def test_setup_makes_the_environment_anew_for_another_python(project: Path):
    """After an upgrade of the system .venv leads to a Python for which nothing is installed in it."""
    make_interpreter_of_this_run(project)
    assert run(project / "scripts" / "use").returncode == 0
    stamp, python = project / ".venv" / ".stamp", project / ".venv" / "bin" / "python"
    before = stamp.read_text()
    python.unlink()
    python.write_text("#!/bin/sh\n[ $1 = -V ] && echo Python 3.99.0\n")
    python.chmod(0o755)
    done = run(project / "scripts" / "use")
    assert (done.returncode, "it is not whole" in done.stderr) == (0, True), done.stderr
    assert stamp.read_text() == before


def test_setup_follows_the_requirements(project: Path):
    """When requirements.txt changes, what is there is checked again; what cannot be installed is an honest failure."""
    make_interpreter_of_this_run(project)
    assert run(project / "scripts" / "use").returncode == 0
    (project / "requirements.txt").write_text("./no-such-package-here\n")
    done = run(project / "scripts" / "use")
    assert done.returncode == 1
    assert "the packages could not be installed" in done.stderr
    assert "no-such-package-here" in done.stderr


@pytest.mark.parametrize(("python", "sentence"), [
    (None, "there is no Python: install Python 3.11"),
    ("exit 1", "is older than 3.11"),
    ("[[ $2 != *venv* ]]", "has no venv module"),
])
def test_setup_says_which_python_is_missing(project: Path, tmp_path: Path, python: str | None, sentence: str):
    """No Python, an old one, one without venv: a sentence each, and exit code 1."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("bash", "dirname", "cksum", "cat"):
        (tools / tool).symlink_to(shutil.which(tool) or "/")
    if python:
        (tools / "python3").write_text(f"#!{shutil.which('bash')}\n{python}\n")
        (tools / "python3").chmod(0o755)
    done = run(tools / "bash", project / "scripts" / "use", PATH=str(tools))
    assert done.returncode == 1
    assert sentence in done.stderr
