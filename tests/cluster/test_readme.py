"""The README's first screen and its tour, executed: curl lines, Python and the operator's commands, against a cluster of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from myqueue import AdminClient, MyConsumer, MyProducer
from myqueue.supervisor import Cluster, ClusterSpec
from tests.support.clusters import PATIENT, kinds_with, running_cluster
from tests.support.curl import answer_to
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
BOOTSTRAP = "localhost:9092"  # what the README says
TOUR = "## The same with curl and with the SDK\n"

pytestmark = pytest.mark.timeout(180)


def blocks(language: str, text: str = "") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text or (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def tour() -> list[str]:
    """The lines of the README's tour; what goes over several lines is one."""
    _, heading, chapter = (ROOT / "README.md").read_text().partition(TOUR)
    assert heading
    return blocks("sh", chapter)[0].replace("\\\n", "").splitlines()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster(ClusterSpec(brokers=1, managers=1, ports=(0,)), kinds=kinds_with(PATIENT)) as cluster:
        yield cluster


def answers_like(shown: str, answer: dict) -> bool:
    """Whether an answer is the one shown; what stands behind an ellipsis is left open."""
    if "…" not in shown:
        return json.loads(shown) == answer
    named = json.loads(shown.replace(",…", ""))
    return named.items() <= answer.items()


def test_the_first_screen_and_then_the_tour_work_as_written(cluster: Cluster) -> None:
    first_screen(cluster)
    lines_of_curl(cluster)
    lines_of_python(cluster)


def first_screen(cluster: Cluster) -> None:
    """In the order of the README: curl first, then the SDK reads what curl wrote, and its own."""
    first, *_ = [block for block in blocks("sh") if "curl -s" in block]
    answer, asked, shown = {}, 0, 0
    for line in first.replace(BOOTSTRAP, cluster.bootstrap).splitlines():
        if line.startswith("curl"):
            answered, asked = answer_to(line), asked + 1
            status, answer = answered.status, answered.json()
            assert 200 == status, f"{line}: {answer}"
        elif line.startswith("# {"):
            shown += 1
            assert answers_like(line[2:], answer), f"the README shows {line[2:]}, the answer is {answer}"
    assert (4, 3) == (asked, shown)

    [program] = blocks("python")
    done = subprocess.run([sys.executable, "-c", program.replace(BOOTSTRAP, cluster.bootstrap)], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (0, "greetings 0 0 hello, log\ngreetings 0 1 hello again\n") == (done.returncode, done.stdout), done.stderr


def lines_of_curl(cluster: Cluster) -> None:
    """Those of the tour, in order, the long poll beside the line that ends it; the ids in them are those that come after the first screen."""
    answers: list[Any] = []
    with ThreadPoolExecutor(1) as pool:
        polling = None
        for line in tour():
            if not line.startswith("curl"):
                continue
            command, *beside = re.split(r" &\s", line.replace(BOOTSTRAP, cluster.bootstrap))
            if beside:
                wait_until(lambda: long_polls(cluster) == 0, what="the end of the first screen's long poll, whose process has ended")
                polling = pool.submit(answer_to, command)
                wait_until(lambda: long_polls(cluster) == 1, what="the long poll to wait")
                continue
            answered = answer_to(command)
            status, answer = answered.status, answered.json()
            assert status in (200, 201), f"{line}: {answer}"
            answers.append(answer)
        assert polling is not None
        polled = polling.result(20)
    created, _, placed, paid, read, shipped, _, size, altered, health = answers
    assert (2, {"retention_ms": 86_400_000}) == (created["partitions"], created["config"])
    assert [0, 1, 0] == [placed["offset"], paid["base_offset"], shipped["base_offset"]]
    told = [(one.get("value", one.get("value_base64")), one["key"], one["offset"]) for one in read["records"]]
    assert [("paid", "o-17", 1), ("AP8=", "o-18", 2)] == told
    assert (200, ["shipped"]) == (polled.status, [one["value"] for one in polled.json()["records"]])
    assert (4, [3, 1]) == (size["size"], [one["size"] for one in size["sizes"]])
    assert {"retention_ms": 86_400_000, "retention_bytes": 1_000_000_000} == altered["config"]
    assert "alive" == health["brokers"][0]["state"]


def long_polls(cluster: Cluster) -> float:
    shown = requests.get(f"{cluster.node('broker-1')['url']}/metrics", timeout=5).text
    return float(re.search(r"^myqueue_long_polls (\S+)$", shown, re.MULTILINE)[1])  # type: ignore[index]


def lines_of_python(cluster: Cluster) -> None:
    """Those above the curl lines, one after the other, on a topic of their own."""
    lines = [line.removeprefix("# ").replace(BOOTSTRAP, cluster.bootstrap).replace('"orders"', '"orders-by-python"') for line in tour()
             if line.startswith("# ")]
    with AdminClient(cluster.bootstrap) as admin:
        names: dict[str, Any] = {"admin": admin, "MyProducer": MyProducer, "MyConsumer": MyConsumer}
        try:
            for line in lines:
                exec(line, names)
        finally:
            for name in ("producer", "consumer"):
                if name in names:
                    names[name].stop()
        assert ("paid", 1) == (names["message"].text(), names["message"].offset)
        assert {"retention_ms": 86_400_000, "retention_bytes": 1_000_000_000} == admin.describe_topic("orders-by-python").config
    assert 9 == len(lines)


def test_every_command_of_the_tables_is_there_and_says_how_it_is_used() -> None:
    text = (ROOT / "README.md").read_text()
    named = set(re.findall(r"`scripts/([a-z-]+)(?![a-z/-])", text))
    there = {path.name for path in (ROOT / "scripts").iterdir() if path.is_file() and os.access(path, os.X_OK)}
    assert there == named
    for name in sorted(there):
        done = subprocess.run([ROOT / "scripts" / name, "--help"], capture_output=True, text=True, timeout=60, cwd="/")
        assert 0 == done.returncode and "usage" in done.stdout.lower(), f"{name}: {done.stdout}{done.stderr}"
