"""From a shape to command lines."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from myqueue.errors import ConfigurationError
from myqueue.supervisor.plan import BROKERS_TO_COME, KINDS, RESERVED_CONNECTIONS, NodeSpec, Places, make_plan, max_connections, pgpass
from myqueue.supervisor.spec import EXTERNAL, PER_NODE, ClusterSpec

SMALL = ClusterSpec(brokers=1, managers=1)
PORTS = {"postgres": 5001, "manager-1": 5002, "broker-1": 5003, "postgres-manager-1": 5004, "postgres-broker-1": 5005}
PLACES = Places(data="/d", cluster_id="c1", prefix="myqueue", ports=PORTS, balancer_ports=(9092, 9093), run="/d/run", logs="/d/logs",
                postgres_home="/d/postgres", secret_file="/d/secrets/cluster.secret", owner_password="own:er", reader_password="rea:der\\")
EXTERNAL_PLACES = replace(PLACES, prefix="myqueue_c1", server_url="postgresql://me:mine@db.example:6000/postgres?sslmode=require")


def plan_of(spec: ClusterSpec, places: Places = PLACES) -> dict[str, NodeSpec]:
    return {node.name: node for node in make_plan(spec, places)}


def test_stages_are_postgres_then_databases_then_services():
    """Nothing starts before what it needs."""
    assert [(node.name, node.stage) for node in make_plan(SMALL, PLACES)] == [
        ("postgres", 0), ("databases-postgres", 1), ("manager-1", 2), ("broker-1", 2), ("balancer", 2)]


def test_command_lines():
    """The documented commands, by their documented flags."""
    plan = plan_of(SMALL)
    assert " ".join(plan["broker-1"].command[1:]) == "-m broker --host 127.0.0.1 --port 5003 --managers http://127.0.0.1:5002"
    assert " ".join(plan["manager-1"].command[1:]) == (
        "-m manager --host 127.0.0.1 --port 5002 --node-id 1 --managers 1=http://127.0.0.1:5002")
    assert " ".join(plan["balancer"].command[1:]) == "-m load_balancer --host 127.0.0.1 --port 9092,9093 --managers http://127.0.0.1:5002"


@pytest.mark.parametrize(("spec", "places"), [(SMALL, PLACES), (replace(SMALL, postgres=PER_NODE), PLACES),
                                              (replace(SMALL, postgres=EXTERNAL), EXTERNAL_PLACES)])
def test_no_secret_is_on_a_command_line_or_shown(spec: ClusterSpec, places: Places):
    """Anybody can read command lines; a repr may land in a log."""
    for node in make_plan(spec, places):
        for secret in ("own:er", "own%3Aer", "rea:der", "mine"):
            assert secret not in " ".join(node.command)
            assert secret not in repr(node)
            assert secret not in json.dumps(node.database)
    assert "own:er" not in repr(places) and "mine" not in repr(places)


def test_a_node_gets_its_own_database():
    """The owner's URL, with what a URL cannot hold quoted, in the environment."""
    plan = plan_of(SMALL)
    assert plan["broker-1"].environment["MYQUEUE_BROKER_DATABASE_URL"] == "postgresql://myqueue_owner:own%3Aer@127.0.0.1:5001/myqueue_broker_1"
    assert plan["broker-1"].database == {"host": "127.0.0.1", "port": 5001, "name": "myqueue_broker_1", "user": "myqueue_reader"}


def test_a_server_of_ones_own_keeps_its_options():
    """Host, port and options of DATABASE_URL stay; names carry the cluster's id, so that two clusters share a server."""
    plan = plan_of(replace(SMALL, postgres=EXTERNAL), EXTERNAL_PLACES)
    assert "postgres" not in plan
    assert plan["manager-1"].environment["MYQUEUE_MANAGER_DATABASE_URL"] == (
        "postgresql://myqueue_c1_owner:own%3Aer@db.example:6000/myqueue_c1_manager_1?sslmode=require")
    assert plan["databases-external"].environment["MYQUEUE_DB_ADMIN_URL"] == EXTERNAL_PLACES.server_url


@pytest.mark.parametrize(("url", "sentence"), [(None, "DATABASE_URL must name it"), ("mysql://h/d", "not a PostgreSQL URL"),
                                               ("postgresql://h:port/d", "cannot be read")])
def test_a_bad_server_url_is_one_sentence(url: str | None, sentence: str):
    """What is missing or wrong is said before anything starts."""
    with pytest.raises(ConfigurationError, match=sentence):
        make_plan(replace(SMALL, postgres=EXTERNAL), replace(EXTERNAL_PLACES, server_url=url))


def test_connections_of_all_nodes_fit():
    """A server allows what the pools of its nodes can open together, those of brokers that may be added while it runs, and a reserve."""
    broker, manager = KINDS["broker"].connections, KINDS["manager"].connections
    assert max_connections(ClusterSpec(), "postgres") == RESERVED_CONNECTIONS + (3 + BROKERS_TO_COME) * broker + 3 * manager
    assert max_connections(ClusterSpec(postgres=PER_NODE), "postgres-broker-2") == RESERVED_CONNECTIONS + broker


def test_each_server_makes_the_databases_it_holds():
    """With a server per node, each gets a job of its own."""
    plan = plan_of(replace(SMALL, postgres=PER_NODE))
    assert plan["databases-postgres-broker-1"].command[-2:] == ("--nodes", "broker-1")
    assert plan["databases-postgres-manager-1"].environment["MYQUEUE_DB_ADMIN_URL"] == "postgresql://postgres@127.0.0.1:5004/postgres"


def test_pgpass_has_a_line_for_every_database():
    """libpq's format: a colon or backslash inside a column is escaped."""
    assert pgpass(SMALL, PLACES) == ("127.0.0.1:5001:myqueue_manager_1:myqueue_reader:rea\\:der\\\\\n"
                                     "127.0.0.1:5001:myqueue_broker_1:myqueue_reader:rea\\:der\\\\\n")


def test_a_plan_survives_json():
    """What the supervisor reads is what was planned."""
    for node in make_plan(SMALL, PLACES):
        assert NodeSpec.from_json(json.loads(json.dumps(node.to_json()))) == node
