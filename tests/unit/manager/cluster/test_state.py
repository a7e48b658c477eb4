"""``apply``: what each command does to the tables, and what it refuses."""

from __future__ import annotations

import pytest

from manager.cluster import commands as c
from manager.cluster.draft import BrokerRegistered, PartitionsCreated, TopicDeleted
from manager.cluster.memory import MemoryMetadata
from manager.cluster.state import apply
from tests.support.metadata import DATABASE, DISKS, LOG


@pytest.fixture
def view() -> MemoryMetadata:
    """A cluster with brokers 1 and 2."""
    view = MemoryMetadata()
    for number in (4, 5):
        do(view, c.AddBroker(DISKS[number], "127.0.0.1", 8000 + number, DATABASE))
    return view


def do(view: MemoryMetadata, command: c.Command) -> dict:
    change = apply(view, command)
    view.write(change.changes)
    return change.reply


def code(reply: dict) -> str:
    return reply["error"]["code"]


def test_the_same_log_gives_the_same_state_and_answers():
    """Folding is deterministic: twice the same log, twice the same tables and replies."""
    one, two = MemoryMetadata(), MemoryMetadata()
    assert [do(one, command) for command in LOG] == [do(two, command) for command in LOG]
    assert one.tables == two.tables


def test_a_rejection_changes_nothing(view):
    before = {name: dict(rows) for name, rows in view.tables.items()}
    for command in (c.CreateTopic("x", partitions=0, live_brokers=(1,)), c.RegisterConsumers(("x",)), c.RemoveBroker(7),
                    c.AddPartition("x", live_brokers=(1,)), c.CreateTopic("a/b", live_brokers=(1,))):
        assert "error" in do(view, command)
    assert view.tables == before


def test_leaders_are_spread_over_the_live_brokers(view):
    do(view, c.CreateTopic("t", partitions=5, live_brokers=(1, 2)))
    assert view.leader_counts() == {1: 3, 2: 2}
    do(view, c.AddPartition("t", live_brokers=(1, 2)))
    assert view.leader_counts() == {1: 3, 2: 3}


def test_a_partition_names_its_voter_with_its_disk(view):
    do(view, c.CreateTopic("t", live_brokers=(2,)))
    row = view.get("partition", topic_id=1, partition=0)
    assert (row["leader"], row["epoch"], row["status"], row["voters"]) == (2, 1, "ACTIVE", {"2": DISKS[5]})


def test_brokers_that_are_not_live_or_not_known_get_nothing(view):
    assert code(do(view, c.CreateTopic("t", live_brokers=(7, 8)))) == "unavailable"
    assert code(do(view, c.CreateTopic("t", live_brokers=None))) == "unavailable"


def test_a_disk_keeps_its_broker_id_and_takes_the_new_address(view):
    assert do(view, c.AddBroker(DISKS[4], "::1", 9999, DATABASE))["result"] == {"broker_id": 1, "new": False}
    assert (view.get("broker", broker_id=1)["host"], view.get("broker", broker_id=1)["port"]) == ("::1", 9999)
    assert do(view, c.AddBroker(DISKS[6], "::1", 9999, DATABASE))["result"] == {"broker_id": 3, "new": True}


def test_a_broker_that_holds_partitions_is_not_removed(view):
    do(view, c.CreateTopic("t", live_brokers=(1,)))
    assert code(do(view, c.RemoveBroker(1))) == "refused"
    assert do(view, c.RemoveBroker(2)) == {"result": {"broker_id": 2}}
    assert code(do(view, c.RemoveBroker(2))) == "unknown_broker"
    assert code(do(view, c.CreateTopic("u", live_brokers=(2,)))) == "unavailable"


def test_a_topic_is_created_once(view):
    assert do(view, c.CreateTopic("t", live_brokers=(1,)))["result"]["topic_id"] == 1
    assert code(do(view, c.CreateTopic("t", live_brokers=(1,)))) == "topic_exists"


def test_a_topic_created_again_has_a_new_identity(view):
    do(view, c.CreateTopic("t", live_brokers=(1,)))
    assert do(view, c.DeleteTopic("t"))["result"]["topic_id"] == 1
    assert do(view, c.CreateTopic("t", live_brokers=(1,)))["result"]["topic_id"] == 2


def test_a_topic_s_config_is_changed_field_by_field(view):
    """What is null goes; the name of another topic by now changes nothing."""
    do(view, c.CreateTopic("t", config={"retention_ms": 5}, live_brokers=(1,)))
    change = apply(view, c.AlterTopic("t", 1, {"retention_bytes": 7}))
    view.write(change.changes)
    assert change.reply == {"result": {"topic": "t", "topic_id": 1, "config": {"retention_ms": 5, "retention_bytes": 7}}}
    assert do(view, c.AlterTopic("t", 1, {"retention_ms": None}))["result"]["config"] == {"retention_bytes": 7}
    assert code(do(view, c.AlterTopic("u", 1, {"retention_ms": 5}))) == "unknown_topic"
    do(view, c.DeleteTopic("t"))
    do(view, c.CreateTopic("t", live_brokers=(1,)))
    assert code(do(view, c.AlterTopic("t", 1, {"retention_ms": 5}))) == "conflict"
    assert [row["config"] for row in view.tables["topic"].values()] == [{}]


def test_partitions_are_added_up_to_a_total(view):
    """The present number changes nothing, fewer and another topic of the name are refused; new ones are spread like the first."""
    do(view, c.CreateTopic("t", partitions=2, live_brokers=(1, 2)))
    more = c.AddPartitions("t", 1, 5, live_brokers=(1, 2))
    change = apply(view, more)
    view.write(change.changes)
    assert change.reply == {"result": {"topic": "t", "topic_id": 1, "partitions": 5, "added": 3}}
    assert change.events == (PartitionsCreated(1, (2, 3, 4)),)
    assert [row["leader"] for row in view.find("partition", topic_id=1)] == [1, 2, 1, 2, 1]
    before = {table: dict(rows) for table, rows in view.tables.items()}
    assert do(view, more)["result"] == {"topic": "t", "topic_id": 1, "partitions": 5, "added": 0}
    fewer = do(view, c.AddPartitions("t", 1, 4, live_brokers=(1, 2)))
    assert (code(fewer), fewer["error"]["details"]["partitions"]) == ("bad_request", 5)
    assert code(do(view, c.AddPartitions("t", 1, 10_001, live_brokers=(1, 2)))) == "bad_request"
    assert code(do(view, c.AddPartitions("t", 1, 6, live_brokers=()))) == "unavailable"
    assert code(do(view, c.AddPartitions("t", 2, 6, live_brokers=(1, 2)))) == "conflict"
    assert code(do(view, c.AddPartitions("u", 1, 6, live_brokers=(1, 2)))) == "unknown_topic"
    assert before == view.tables
    assert do(view, c.AddPartitions("t", 1, 5, live_brokers=()))["result"]["added"] == 0


def test_deleting_a_topic_takes_what_refers_to_it(view):
    do(view, c.RegisterProducers(("t",), live_brokers=(1,)))
    do(view, c.RegisterConsumers(("t",)))
    do(view, c.DeleteTopic("t"))
    assert [view.tables[name] for name in ("topic", "partition", "producer", "consumer")] == [{}, {}, {}, {}]


def test_one_producer_registration_may_create_several_topics(view):
    """Ids and placement inside one command see what it did before."""
    reply = do(view, c.RegisterProducers(("a", "b", "a"), live_brokers=(1, 2)))["result"]["producers"]
    assert reply == {"a": {"producer_id": 1, "topic_id": 1}, "b": {"producer_id": 2, "topic_id": 2}}
    assert view.leader_counts() == {1: 1, 2: 1}


def test_ids_are_one_space_per_kind(view):
    first = do(view, c.RegisterProducers(("a",), live_brokers=(1,)))["result"]["producers"]["a"]["producer_id"]
    second = do(view, c.RegisterProducers(("b",), live_brokers=(1,)))["result"]["producers"]["b"]["producer_id"]
    assert (first, second) == (1, 2)
    assert do(view, c.RegisterConsumers(("a",)))["result"]["consumers"]["a"]["consumer_id"] == 1


def test_consumers_of_unknown_topics_register_nothing(view):
    do(view, c.CreateTopic("known", live_brokers=(1,)))
    reply = do(view, c.RegisterConsumers(("known", "x", "y")))
    assert (code(reply), reply["error"]["details"]["topics"]) == ("unknown_topic", ["x", "y"])
    assert "consumer" not in view.tables


def test_replicas_are_refused_with_a_sentence(view):
    assert do(view, c.CreateTopic("t", replication_factor=3, live_brokers=(1, 2)))["error"]["message"] == (
        "replication_factor must be 1: replicas are not supported yet")


def test_a_cluster_is_initialised_once():
    view = MemoryMetadata()
    assert "result" in do(view, LOG[0])
    assert code(do(view, LOG[0])) == "conflict"
    assert view.get("raft_state", only_row=True)["cluster_id"] == LOG[0].cluster_id


def test_events_say_what_the_shell_must_do(view):
    assert apply(view, c.AddBroker(DISKS[4], "h", 1, DATABASE)).events == (BrokerRegistered(1),)
    created = apply(view, c.CreateTopic("t", partitions=2, live_brokers=(1,)))
    assert created.events == (PartitionsCreated(1, (0, 1)),)
    view.write(created.changes)
    assert apply(view, c.DeleteTopic("t")).events == (TopicDeleted(1, (1,)),)
