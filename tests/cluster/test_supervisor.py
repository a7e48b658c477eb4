"""The supervisor with real processes and a real PostgreSQL; the services are stand-ins that listen and answer /readyz."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg2
import pytest
import requests

from db.engine import parse_url
from myqueue.errors import ConfigurationError, OutcomeUnknownError, UnavailableError
from myqueue.supervisor import Cluster, ClusterSpec
from myqueue.supervisor.control import ask
from myqueue.supervisor.process import descendants, is_alive, signal_all
from tests.support.clusters import SMALL, STAND_INS, cluster_folder, get, is_root, processes_of, running_cluster
from tests.support.postgres import open_folder
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(180)  # each test starts and ends whole clusters, on a machine that may be busy


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    """A cluster that is up; a test leaves every node up."""
    with running_cluster(SMALL, kinds=STAND_INS) as cluster:
        yield cluster


@pytest.fixture
def data() -> Iterator[Path]:
    with cluster_folder() as data:
        yield data


def reader_query(cluster: Cluster, node: str, statement: str) -> list[tuple]:
    """As Spark does it: the address from the status, the password from pgpass."""
    address = cluster.node(node)["database"]
    with closing(psycopg2.connect(host=address["host"], port=address["port"], dbname=address["name"], user=address["user"],
                                  passfile=str(cluster.folder.pgpass_file), connect_timeout=5)) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def owner_query(cluster: Cluster, node: str, statement: str) -> None:
    url = get(cluster.node(node)["url"] + "/environment")["MYQUEUE_BROKER_DATABASE_URL"]
    with closing(psycopg2.connect(url, connect_timeout=5)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(statement)


def test_up_returns_when_every_node_is_ready(running: Cluster):
    """Each node is up, ready and answers where the status says."""
    status = running.status()
    assert status["state"] == "up"
    assert [(node["name"], node["state"], node["ready"]) for node in status["nodes"]] == [
        (name, "up", True) for name in ("postgres", "manager-1", "broker-1", "balancer")]
    assert get(f"{running.balancer_url}/readyz") == {"ready": True}
    assert all(is_alive(node["pid"]) for node in status["nodes"])


def test_up_again_changes_nothing(running: Cluster):
    """A second ``up`` finds everything there."""
    before = [node["pid"] for node in running.status()["nodes"]]
    Cluster(running.data, SMALL, kinds=STAND_INS).up()
    assert [node["pid"] for node in running.status()["nodes"]] == before
    with pytest.raises(ConfigurationError, match="is up in another shape"):
        Cluster(running.data, ClusterSpec(brokers=2, managers=1, ports=(0,)), kinds=STAND_INS).up()


def test_secrets_are_for_the_owner_only(running: Cluster):
    """Every secret is 0600 in a folder 0700, and no command line holds one."""
    for folder in (running.folder.secrets, running.folder.logs, running.folder.run):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = [*running.folder.secrets.iterdir(), running.folder.control_file]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    secrets = [file.read_text().strip() for file in running.folder.secrets.iterdir() if file.name.endswith("password")]
    assert len(secrets) == 2
    for pid in [node["pid"] for node in running.status()["nodes"]]:
        command = Path(f"/proc/{pid}/cmdline").read_text()
        assert not any(secret in command for secret in secrets)


def test_the_reader_gets_in_by_pgpass(running: Cluster):
    """What Spark needs is in the status and in pgpass."""
    owner_query(running, "broker-1", "CREATE TABLE IF NOT EXISTS for_reader AS SELECT 42 AS answer")
    assert reader_query(running, "broker-1", "SELECT answer FROM for_reader") == [(42,)]


def test_what_dies_by_itself_is_started_again(running: Cluster):
    """A crash is repaired without anybody asking."""
    before = running.node("broker-1")
    with pytest.raises(requests.ConnectionError):
        get(before["url"] + "/die")
    after = wait_until(lambda: (node := running.node("broker-1"))["ready"] and node["pid"] != before["pid"] and node, what="the restart")
    assert (after["exits"], after["last_exit_code"], after["url"]) == (before["exits"] + 1, 7, before["url"])


@pytest.mark.parametrize("verb", ["kill", "stop"])
@pytest.mark.parametrize("name", ["manager-1", "postgres"])
def test_what_was_taken_down_stays_down_until_it_is_started(running: Cluster, verb: str, name: str):
    """``kill`` and ``stop`` end a node with all it started; ``start`` brings it back."""
    pid = running.node(name)["pid"]
    tree = [pid, *descendants(pid)]
    getattr(running, verb)(name)
    node = running.node(name)
    assert (node["state"], node["pid"], node["ready"], node["exits"]) == ("down", None, False, 0)
    assert not any(map(is_alive, tree)), "it is down once all its processes are gone"
    running.start(name)
    wait_until(lambda: running.node(name)["ready"], what="it to be ready")


def test_a_frozen_node_is_there_but_not_ready(running: Cluster):
    """``pause`` freezes the whole tree; ``resume`` lets the same process go on."""
    pid = running.node("broker-1")["pid"]
    running.pause("broker-1")
    node = running.node("broker-1")
    assert (node["state"], node["ready"], node["pid"]) == ("paused", False, pid)
    running.resume("broker-1")
    wait_until(lambda: running.node("broker-1")["ready"], what="it to be ready")
    assert running.node("broker-1")["pid"] == pid


def test_a_frozen_node_can_be_stopped(running: Cluster):
    """A stop wakes it first."""
    running.pause("broker-1")
    running.restart("broker-1")
    wait_until(lambda: running.node("broker-1")["ready"], what="it to be ready")


def test_variables_of_one_start(running: Cluster):
    """Tests arm fault points for one start of one node; the next start is without."""
    running.stop("broker-1")
    running.start("broker-1", environment={"MYQUEUE_FAULT": "somewhere"})
    assert get(running.node("broker-1")["url"] + "/environment")["MYQUEUE_FAULT"] == "somewhere"
    running.restart("broker-1")
    assert "MYQUEUE_FAULT" not in get(running.node("broker-1")["url"] + "/environment")


def test_a_node_that_cannot_start_is_said_and_left_down(running: Cluster):
    """The sentence holds what the node said; the others are not touched."""
    running.stop("broker-1")
    with pytest.raises(UnavailableError, match=r"broker-1 did not start .*I cannot start, as I was told"):
        running.start("broker-1", environment={"STAND_IN": "fail"})
    wait_until(lambda: running.node("broker-1")["state"] == "down", what="the supervisor to leave it down")
    running.start("broker-1")


def test_an_unknown_node_is_said(running: Cluster):
    """The sentence names those there are; the database jobs are no nodes."""
    for name in ("broker-9", "databases-postgres"):
        with pytest.raises(ConfigurationError, match=f"there is no node '{name}': there are postgres, manager-1, broker-1, balancer"):
            running.kill(name)


def test_logs_are_the_nodes_own_words(running: Cluster):
    """Each node has a file; the supervisor's says what it did."""
    assert any("PostgreSQL is ready" in line for line in running.logs("postgres"))
    assert any("balancer: started as pid" in line for line in running.logs("supervisor", 1_000))


def test_rows_survive_down_and_up(data: Path):
    """Down ends every process; up brings data, ports and passwords back."""
    cluster = Cluster(data, SMALL, kinds=STAND_INS)
    cluster.up()
    owner_query(cluster, "broker-1", "CREATE TABLE kept AS SELECT 1 AS id")
    before = cluster.status()
    tree = [node["pid"] for node in before["nodes"]]
    cluster.down()
    assert not any(map(is_alive, tree)) and not processes_of(cluster)
    assert cluster.status()["state"] == "down"
    cluster.up()
    after = cluster.status()
    assert [node["url"] for node in after["nodes"]] == [node["url"] for node in before["nodes"]]
    assert reader_query(cluster, "broker-1", "SELECT id FROM kept") == [(1,)]
    cluster.down()


def test_rows_survive_kill_of_everything(data: Path):
    """kill -9 of the supervisor and of every process below it, a frozen one too; up finds every committed row."""
    cluster = Cluster(data, SMALL, kinds=STAND_INS)
    cluster.up()
    owner_query(cluster, "broker-1", "CREATE TABLE kept AS SELECT 1 AS id")
    cluster.pause("manager-1")
    supervisor = supervisor_pid(cluster)
    signal_all([supervisor, *descendants(supervisor)], signal.SIGKILL)  # some end by themselves as soon as the first is gone
    again = Cluster(data, kinds=STAND_INS)
    again.up()  # at once: the kernel may still be taking the old one apart
    assert reader_query(again, "broker-1", "SELECT id FROM kept") == [(1,)]
    again.down()
    cluster.down()


def test_nodes_end_with_a_killed_supervisor(data: Path):
    """kill -9 of the supervisor alone: its nodes end by themselves, what is frozen is ended by the next ``down``."""
    cluster = Cluster(data, SMALL, kinds=STAND_INS)
    cluster.up()
    supervisor = supervisor_pid(cluster)
    tree = descendants(supervisor)
    frozen = cluster.node("broker-1")["pid"]
    cluster.pause("broker-1")
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: [pid for pid in tree if is_alive(pid)] == [frozen], what="all but the frozen node to end")
    cluster.down()
    assert not is_alive(frozen)


def test_everything_ends_with_an_attached_starter(data: Path):
    """A demo or test that is killed -9 leaves no cluster behind."""
    program = ("import sys; from myqueue.supervisor import Cluster; from tests.support.clusters import SMALL, STAND_INS\n"
               "Cluster(sys.argv[1], SMALL, kinds=STAND_INS).up(); print('up', flush=True); sys.stdin.read()")
    starter = subprocess.Popen([sys.executable, "-c", program, str(data)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with starter:
        assert starter.stdout.readline() == b"up\n"
        cluster = Cluster(data, kinds=STAND_INS)
        assert processes_of(cluster)
        starter.kill()
    wait_until(lambda: not cluster.folder.is_supervised() and not processes_of(cluster), timeout_seconds=20, what="the cluster to end")


def test_a_failed_start_leaves_nothing(data: Path):
    """One node that cannot start takes everything down again, and the sentence holds its last words."""
    cluster = Cluster(data, SMALL, kinds=STAND_INS, environment={"broker-1": {"STAND_IN": "fail"}})
    with pytest.raises(UnavailableError, match=r"broker-1 did not start \(exit code 1\): stand-in: I cannot start, as I was told"):
        cluster.up()
    assert not cluster.folder.is_supervised() and not processes_of(cluster)


def test_a_node_that_is_never_ready_is_said_in_time(data: Path):
    """The wait has an end, and it leaves nothing; whoever is not ready by then is named."""
    cluster = Cluster(data, SMALL, kinds=STAND_INS, environment={"manager-1": {"STAND_IN": "never-ready"}})
    with pytest.raises(UnavailableError, match=r"^([a-z0-9-]+, )*manager-1(, [a-z0-9-]+)* not ready within 5 s; "):
        cluster.up(timeout_seconds=5)
    assert not cluster.folder.is_supervised() and not processes_of(cluster)


@pytest.mark.parametrize("has_died", [False, True], ids=["fresh", "died_before"])
def test_only_who_is_not_ready_is_named(running: Cluster, has_died: bool):
    """Of nodes that are up the sentence names the one that does not answer, though it was started again once; and takes nothing down."""
    if has_died:
        first = running.node("broker-1")
        with pytest.raises(requests.ConnectionError):
            get(first["url"] + "/die")
        wait_until(lambda: (node := running.node("broker-1"))["ready"] and node["pid"] != first["pid"], what="the restart")
    else:
        running.restart("broker-1")
    before = [node["pid"] for node in running.status()["nodes"]]
    running.pause("broker-1")
    try:
        with pytest.raises(UnavailableError, match=r"^broker-1 not ready within 5 s; "):
            Cluster(running.data, SMALL, kinds=STAND_INS).up(timeout_seconds=5)
    finally:
        running.resume("broker-1")
    Cluster(running.data, SMALL, kinds=STAND_INS).up()
    assert [node["pid"] for node in running.status()["nodes"]] == before


def test_a_postgres_that_cannot_start_is_one_sentence(data: Path, monkeypatch: pytest.MonkeyPatch):
    """What the server's own command said comes through."""
    monkeypatch.setenv("PG_BIN", "/nowhere")
    with pytest.raises(UnavailableError, match=r"postgres did not start.*: PG_BIN is /nowhere"):
        Cluster(data, SMALL, kinds=STAND_INS).up()


def test_two_clusters_side_by_side_and_a_taken_port(running: Cluster, data: Path):
    """A second cluster picks other ports; asking for a taken one is one sentence and starts nothing."""
    port = int(running.bootstrap.rpartition(":")[2])
    with pytest.raises(ConfigurationError, match=f"port {port} on 127.0.0.1 is taken by another program: choose another by --port"):
        Cluster(data, ClusterSpec(brokers=1, managers=1, ports=(port,)), kinds=STAND_INS).up()
    assert not data.exists()
    second = Cluster(data, ClusterSpec(brokers=2, managers=1, ports=(0, 0)), kinds=STAND_INS)
    second.up()
    ports = second.status()["balancer_ports"]
    assert len(set(ports)) == 2 and port not in ports
    assert all(get(f"http://127.0.0.1:{one}/readyz") == {"ready": True} for one in ports)
    second.down()
    assert running.status()["state"] == "up"


def test_a_cluster_grows_by_a_broker(data: Path):
    """More brokers than before: the new one gets a database of its own, the others keep theirs."""
    cluster = Cluster(data, SMALL, kinds=STAND_INS)
    cluster.up()
    owner_query(cluster, "broker-1", "CREATE TABLE kept AS SELECT 1 AS id")
    cluster.down()
    grown = Cluster(data, ClusterSpec(brokers=2, managers=1, ports=(0,)), kinds=STAND_INS)
    grown.up()
    assert reader_query(grown, "broker-1", "SELECT id FROM kept") == [(1,)]
    assert reader_query(grown, "broker-2", "SELECT to_regclass('kept') IS NULL") == [(True,)]
    grown.down()


@pytest.mark.parametrize("postgres", [pytest.param("shared", marks=pytest.mark.long), "per-node"])
def test_a_broker_is_added_to_a_cluster_that_is_up(data: Path, postgres: str):
    """It gets a port, a database and a login; the others run on. It is there after down and up too."""
    cluster = Cluster(data, ClusterSpec(brokers=1, managers=1, ports=(0,), postgres=postgres), kinds=STAND_INS)
    cluster.up()
    before = {node["name"]: node["pid"] for node in cluster.status()["nodes"]}
    assert "broker-2" == cluster.add_broker()
    after = {node["name"]: node["pid"] for node in cluster.status()["nodes"]}
    assert before == {name: pid for name, pid in after.items() if name in before}
    assert {"broker-2"} | ({"postgres-broker-2"} if postgres == "per-node" else set()) == set(after) - set(before)
    assert get(cluster.node("broker-2")["url"] + "/readyz") == {"ready": True}
    owner_query(cluster, "broker-2", "CREATE TABLE kept AS SELECT 1 AS id")
    cluster.down(lasting=False)  # what is committed is there all the same
    server_log = cluster.folder.logs / f"{'postgres' if postgres == 'shared' else 'postgres-broker-2'}.server.log"
    assert "immediate shutdown" in server_log.read_text()
    again = Cluster(data, kinds=STAND_INS)
    again.up()
    assert reader_query(again, "broker-2", "SELECT id FROM kept") == [(1,)]
    again.down()


def test_a_broker_that_cannot_be_added_is_said_and_tried_again(data: Path):
    """Nothing of it is left running; the next call starts the same broker."""
    cluster = Cluster(data, SMALL, kinds=STAND_INS)
    with pytest.raises(ConfigurationError, match="there is no cluster"):
        cluster.add_broker()
    cluster.up()
    for nonsense in ({}, {"nodes": [{"name": "broker-2"}]}, {"nodes": ["broker-2"]}):
        with pytest.raises(ConfigurationError, match="the new nodes' plan cannot be read"):
            ask(cluster.folder, "grow", **nonsense)
    broken = Cluster(data, kinds={**STAND_INS, "databases": replace(STAND_INS["databases"], command=("false",))})
    with pytest.raises(OutcomeUnknownError, match=r"databases-postgres failed, so broker-2 was not started: .*; broker-2 belongs to the cluster"):
        broken.add_broker()
    assert "broker-2" not in {node["name"] for node in cluster.status()["nodes"]}
    assert "broker-2" == Cluster(data, kinds=STAND_INS).add_broker()
    cluster.down()
    with pytest.raises(ConfigurationError, match="is down: start it by 'up'"):
        cluster.add_broker()


def test_a_server_per_node(data: Path):
    """``--postgres per-node``: each node's database is on a server of its own."""
    cluster = Cluster(data, ClusterSpec(brokers=1, managers=1, ports=(0,), postgres="per-node"), kinds=STAND_INS)
    cluster.up()
    addresses = [cluster.node(name)["database"] for name in ("manager-1", "broker-1")]
    assert addresses[0]["port"] != addresses[1]["port"]
    assert reader_query(cluster, "broker-1", "SELECT current_database()") == [("myqueue_broker_1",)]
    cluster.down()


def test_a_server_of_ones_own(postgres, data: Path):
    """DATABASE_URL: a database per node is made there, nothing is embedded, and reset removes them and nothing else."""
    cluster = Cluster(data, SMALL, kinds=STAND_INS, server_url=postgres.admin_url)
    cluster.up()
    assert [node["name"] for node in cluster.status()["nodes"]] == ["manager-1", "broker-1", "balancer"]
    address = cluster.node("broker-1")["database"]
    assert address["port"] == parse_url(postgres.admin_url).port
    assert reader_query(cluster, "broker-1", "SELECT current_database()") == [(address["name"],)]
    with pytest.raises(ConfigurationError, match="DATABASE_URL must name it"):
        Cluster(data, kinds=STAND_INS).reset()
    cluster.reset()
    assert not data.exists()
    with closing(psycopg2.connect(postgres.admin_url)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_database WHERE datname = %s", (address["name"],))
        assert cursor.fetchone() == (0,)


def test_a_folder_that_postgres_cannot_enter(tmp_path_factory: pytest.TempPathFactory):
    """Below a closed folder, as root, PostgreSQL's data goes where its account can reach it; reset removes that too."""
    with open_folder() as parent:
        parent.chmod(0o700)
        cluster = Cluster(parent / "data", SMALL, kinds=STAND_INS)
        try:
            cluster.up()
            home = Path(cluster.folder.load().postgres_home)
            assert home.is_relative_to("/var/lib/myqueue") is is_root()
            assert (home / "postgres" / "PG_VERSION").exists()
        finally:
            cluster.reset()
        assert not home.exists() and not cluster.data.exists()


def test_a_foreign_folder_is_neither_used_nor_removed():
    """A folder with something else in it is refused by ``up`` and by ``reset``."""
    with open_folder() as folder:
        (folder / "thesis.txt").write_text("years of work")
        with pytest.raises(ConfigurationError, match="is not empty and holds no cluster"):
            Cluster(folder, SMALL, kinds=STAND_INS).up()
        with pytest.raises(ConfigurationError, match="there is no cluster in"):
            Cluster(folder, kinds=STAND_INS).reset()
        assert (folder / "thesis.txt").read_text() == "years of work"


def supervisor_pid(cluster: Cluster) -> int:
    return json.loads(cluster.folder.control_file.read_text())["pid"]
