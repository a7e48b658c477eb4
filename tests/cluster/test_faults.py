"""Kill -9 of each kind of node in turn, under load of both faces: nothing acknowledged is lost, nothing is stored twice."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
from collections.abc import Iterator

import pytest
import requests

from myqueue.supervisor import Cluster, ClusterSpec
from myqueue.supervisor.process import descendants
from tests.support.clusters import running_cluster
from tests.support.load import QueueFaceLoad, SdkLoad
from tests.support.long import LONG
from tests.support.waiting import wait_until

ALL = ("broker-1", "broker-2", "broker-3", "manager-1", "manager-2", "manager-3", "balancer", "postgres")
VICTIMS = ALL if LONG else ("broker-1", "manager-1", "balancer", "postgres")  # each kind once, or scripts/test long
RECOVERY_SECONDS = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster(ClusterSpec(brokers=3, managers=3, ports=(0,))) as cluster:
        yield cluster


@pytest.mark.timeout(400)
def test_nothing_acknowledged_is_lost_when_nodes_are_killed_in_turn(cluster: Cluster) -> None:
    loads: list[SdkLoad | QueueFaceLoad] = []
    for number in range(3):  # as many topics as brokers: each broker leads some
        topic = f"sdk-{number}-{secrets.token_hex(3)}"
        requests.post(f"{cluster.balancer_url}/topics", json={"topic": topic, "partitions": 2}, timeout=15).raise_for_status()
        loads.append(SdkLoad(cluster.bootstrap, topic))
    loads.append(QueueFaceLoad(cluster.balancer_url, f"queue-{secrets.token_hex(3)}"))
    created = []
    for victim in VICTIMS:
        progress_of_all(loads)
        cluster.kill(victim)
        if not victim.startswith(("postgres", "balancer")):
            created.append(create_topic(cluster))  # a majority of the managers and two brokers are there
        cluster.start(victim)
        progress_of_all(loads)
        created.append(create_topic(cluster))
    for load in loads:
        load.finish()
    assert [] == [fault for load in loads for fault in load.faults()]
    topics = requests.get(f"{cluster.balancer_url}/topics", timeout=15).json()["topics"]
    assert set(created) <= set(topics)


def progress_of_all(loads: list) -> None:
    """Every load gets something acknowledged from now on."""
    for load in loads:
        before = acknowledged(load)
        wait_until(lambda load=load, before=before: acknowledged(load) > before, timeout_seconds=RECOVERY_SECONDS, what=f"progress of {load.topic}")


def acknowledged(load: SdkLoad | QueueFaceLoad) -> int:
    return load.delivered if isinstance(load, SdkLoad) else len(load.acknowledged)


def create_topic(cluster: Cluster) -> str:
    """Create a topic, repeating the call until it is said to be there: it may have been done by an earlier one."""
    name = f"made-{secrets.token_hex(4)}"

    def made() -> bool:
        answer = requests.post(f"{cluster.balancer_url}/topics", json={"topic": name}, timeout=15).json()
        return answer["status"] == "success" or answer.get("code") == "topic_exists"

    wait_until(made, timeout_seconds=RECOVERY_SECONDS, what="a topic to be created", interval_seconds=0.2)
    return name


@pytest.mark.timeout(300)
def test_everything_is_there_after_kill_of_everything(cluster: Cluster) -> None:
    load = QueueFaceLoad(cluster.balancer_url, f"all-{secrets.token_hex(3)}")
    progress_of_all([load])
    supervisor = json.loads(cluster.folder.control_file.read_text())["pid"]
    for pid in [supervisor, *descendants(supervisor)]:
        with contextlib.suppress(ProcessLookupError):  # its parent took it along
            os.kill(pid, signal.SIGKILL)
    load.finish()
    cluster.up()
    assert load.acknowledged
    assert [] == load.faults()
