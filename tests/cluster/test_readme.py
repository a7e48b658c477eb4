"""The README's first screen, executed: its curl lines, its Python and its operator's commands, against a cluster of its own."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from myqueue.supervisor import Cluster, ClusterSpec
from tests.support.clusters import running_cluster

ROOT = Path(__file__).parents[2]
BOOTSTRAP = "localhost:9092"  # what the README says

pytestmark = pytest.mark.timeout(180)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster(ClusterSpec(brokers=1, managers=1, ports=(0,))) as cluster:
        yield cluster


def curl(line: str) -> requests.Response:
    """A curl command line as far as the README uses it; the test must not need curl."""
    words = shlex.split(line)
    assert "curl" == words.pop(0)
    method, data, url = "GET", [], ""
    while words:
        word = words.pop(0)
        if word == "-X":
            method = words.pop(0)
        elif word == "-d":
            data.append(words.pop(0))
        elif word != "-s":
            assert not word.startswith("-"), f"curl {word} is not known here"
            url = word
    headers = {"Content-Type": "application/x-www-form-urlencoded"} if data else {}
    return requests.request(method, url if "://" in url else f"http://{url}", data="&".join(data).encode() or None, headers=headers, timeout=15)


def answers_like(shown: str, answer: dict) -> bool:
    """Whether an answer is the one shown; what stands behind an ellipsis is left open."""
    if "…" not in shown:
        return json.loads(shown) == answer
    named = json.loads(shown.replace(",…", ""))
    return named.items() <= answer.items()


def test_the_first_screen_works_as_written(cluster: Cluster) -> None:
    """In the order of the README: curl first, then the SDK reads what curl wrote, and its own."""
    [tour] = [block for block in blocks("sh") if "curl -s" in block]
    lines = tour.replace(BOOTSTRAP, cluster.bootstrap).splitlines()
    answer, asked, shown = requests.Response(), 0, 0
    for line in lines:
        if line.startswith("curl"):
            answer, asked = curl(line), asked + 1
            assert 200 == answer.status_code, f"{line}: {answer.text}"
        elif line.startswith("# {"):
            shown += 1
            assert answers_like(line[2:], answer.json()), f"the README shows {line[2:]}, the answer is {answer.text}"
    assert (4, 3) == (asked, shown)

    [program] = blocks("python")
    done = subprocess.run([sys.executable, "-c", program.replace(BOOTSTRAP, cluster.bootstrap)], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (0, "greetings 0 0 hello, log\ngreetings 0 1 hello again\n") == (done.returncode, done.stdout), done.stderr


def test_every_command_of_the_tables_is_there_and_says_how_it_is_used() -> None:
    text = (ROOT / "README.md").read_text()
    named = set(re.findall(r"`scripts/([a-z-]+)(?![a-z/-])", text))
    there = {path.name for path in (ROOT / "scripts").iterdir() if path.is_file() and os.access(path, os.X_OK)}
    assert there == named
    for name in sorted(there):
        done = subprocess.run([ROOT / "scripts" / name, "--help"], capture_output=True, text=True, timeout=60, cwd="/")
        assert 0 == done.returncode and "usage" in done.stdout.lower(), f"{name}: {done.stdout}{done.stderr}"
