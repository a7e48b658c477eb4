"""``scripts/cluster`` from the outside, with the real services."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from myqueue.supervisor import Cluster
from tests.support.clusters import cluster_folder, processes_of
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
COMMAND = str(ROOT / "scripts" / "cluster")
SMALL = ("--brokers", "1", "--managers", "1", "--port", "0")
TIMEOUT_SECONDS = 100

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def data() -> Iterator[Path]:
    with cluster_folder() as data:
        yield data


def run(verb: str, data: Path, *more: str, code: int = 0) -> str:
    """One command; its output, once it has ended with the wanted code."""
    done = subprocess.run([COMMAND, verb, "--data", str(data), *more], cwd="/", capture_output=True, text=True, timeout=TIMEOUT_SECONDS,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def foreground(data: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([COMMAND, "up", "--data", str(data), "--foreground", *SMALL], cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            stdin=subprocess.DEVNULL, text=True, start_new_session=True)


def states_of_brokers(url: str) -> list[str]:
    return [broker["state"] for broker in requests.get(f"{url}/brokers", timeout=10).json()["brokers"]]


def test_a_day_with_a_cluster(data: Path):
    """up, status, a message, one broker more, kill, start, down, up again, reset: each ends with 0 and one line that says the result."""
    assert run("up", data, *SMALL).splitlines()[-1].startswith("ready: http://127.0.0.1:")
    status = json.loads(run("status", data, "--json"))
    assert [(node["name"], node["ready"]) for node in status["nodes"]] == [
        ("postgres", True), ("manager-1", True), ("broker-1", True), ("balancer", True)]
    raft = [node["raft"] for node in status["nodes"] if node["kind"] == "manager"]
    assert all(one["has_quorum"] and one["last_applied"] <= one["commit_idx"] for one in raft), raft
    assert 1 == sum(one["is_leader"] for one in raft)
    assert [1] == [node["broker_id"] for node in status["nodes"] if node["kind"] == "broker"]
    shown = run("status", data)
    assert re.search(r"^broker-1 +1 +up ", shown, re.MULTILINE) and "freshness" in shown, shown
    url = f"http://{status['bootstrap']}"
    assert requests.post(f"{url}/producer/register", data={"topic": "t"}, timeout=10).json()["producer_id"] == 1
    sent = requests.post(f"{url}/producer/produce", data={"topic": "t", "producer_id": 1, "message": "kept"}, timeout=10)
    assert sent.status_code == 200, sent.text
    added = requests.post(f"{url}/brokers", timeout=30)  # no address: the supervisor starts one
    assert (added.status_code, added.json()) == (201, {"status": "Success", "broker_id": 2}) or added.json()["outcome"] == "unknown", added.text
    wait_until(lambda: states_of_brokers(url) == ["alive", "alive"], timeout_seconds=TIMEOUT_SECONDS, what="a second broker")
    assert run("kill", data, "broker-1") == "broker-1: down\n"
    assert run("start", data, "broker-1").startswith("broker-1: up as pid ")
    assert run("down", data).splitlines()[-1] == f"down: the data stays in {data}"
    assert run("start", data, "broker-1", code=1) == f"myqueue: the cluster in {data} is down: start it by 'up'\n"
    assert run("add-broker", data, code=1) == f"myqueue: the cluster in {data} is down: start it by 'up'\n"
    run("up", data)
    wait_until(lambda: states_of_brokers(url) == ["alive", "alive"], what="both brokers to be heard")
    requests.post(f"{url}/consumer/register", data={"topic": "t"}, timeout=10)
    read = requests.get(f"{url}/consumer/consume", params={"topic": "t", "consumer_id": 1}, timeout=10)
    assert read.json()["message"] == "kept"
    assert run("reset", data, "--yes").splitlines()[-1] == f"gone: {data} and all its data"
    assert not data.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_the_foreground_ends_everything(data: Path, number: int):
    """Ctrl-C and SIGTERM take a cluster in the foreground down cleanly: exit code 0, nothing runs on."""
    with foreground(data) as process:
        line = wait_until(lambda: (line := process.stdout.readline()).startswith("ready:") and line, timeout_seconds=60, what="the ready line")
        assert "Ctrl-C ends it" in line
        os.killpg(process.pid, number)
        output, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 0, errors
    assert output.splitlines()[-1] == "down: the data stays"
    assert not processes_of(Cluster(data))


def test_an_interrupted_start_leaves_nothing(data: Path):
    """Ctrl-C while it starts: exit code 1 and no process."""
    with foreground(data) as process:
        cluster = Cluster(data)
        wait_until(lambda: cluster.folder.is_supervised(), timeout_seconds=30, what="the supervisor")
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 1
    assert errors.splitlines()[-1] == "ended: everything was taken down again"
    assert not cluster.folder.is_supervised() and not processes_of(cluster)


def test_what_could_not_be_added_is_said_as_json_too(data: Path):
    """For the managers, which run this command: whether anything was done."""
    done = subprocess.run([COMMAND, "add-broker", "--json", "--data", str(data)], capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    sentence = f"there is no cluster in {data}: start one by 'up'"
    assert (1, f"myqueue: {sentence}\n") == (done.returncode, done.stderr)
    assert {"error": sentence, "outcome": "not_done"} == json.loads(done.stdout)


def test_what_is_not_there_is_one_sentence(data: Path):
    """No cluster, no such node: exit code 1, nothing made."""
    assert run("status", data, code=1) == f"myqueue: there is no cluster in {data}: start one by 'up'\n"
    assert run("kill", data, "broker-1", code=1) == f"myqueue: there is no cluster in {data}: start one by 'up'\n"
    assert not data.exists()
