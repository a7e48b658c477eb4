"""The shape of a cluster."""

from __future__ import annotations

import pytest

from myqueue.errors import ConfigurationError
from myqueue.supervisor.spec import EXTERNAL, PER_NODE, ClusterSpec


@pytest.mark.parametrize(("options", "sentence"), [
    ({"brokers": 0}, "--brokers is 0: it must be from 1 to 32"),
    ({"managers": 2}, "--managers is 2: an odd number"),
    ({"managers": 9}, "--managers is 9"),
    ({"ports": ()}, "--port is needed"),
    ({"ports": (9092, 9092)}, "the same port twice"),
    ({"ports": (70_000,)}, "--port is 70000"),
    ({"postgres": "mysql"}, "--postgres is 'mysql'"),
])
def test_an_impossible_shape_is_one_sentence(options: dict, sentence: str):
    """What cannot be built is said with its flag."""
    with pytest.raises(ConfigurationError, match=sentence):
        ClusterSpec(**options)


def test_every_node_has_its_name():
    """PostgreSQL first, then managers, brokers and the balancer."""
    assert ClusterSpec(brokers=2, managers=1).names() == ("postgres", "manager-1", "broker-1", "broker-2", "balancer")
    assert ClusterSpec(brokers=1, managers=1, postgres=PER_NODE).names() == (
        "postgres-manager-1", "postgres-broker-1", "manager-1", "broker-1", "balancer")
    assert ClusterSpec(brokers=1, managers=1, postgres=EXTERNAL).names() == ("manager-1", "broker-1", "balancer")


def test_several_free_ports_may_be_asked_for():
    """0 stands for a free port and may be repeated."""
    assert ClusterSpec(ports=(0, 0)).ports == (0, 0)


def test_a_cluster_may_grow_by_brokers_only():
    """More brokers are fine; everything else about existing data is fixed."""
    before = ClusterSpec(brokers=2)
    ClusterSpec(brokers=5, ports=(1234,)).grown_from(before)
    for wrong, sentence in ((ClusterSpec(brokers=1), "not shrink"), (ClusterSpec(brokers=2, managers=5), "3 managers"),
                            (ClusterSpec(brokers=2, postgres=PER_NODE), "--postgres shared")):
        with pytest.raises(ConfigurationError, match=sentence):
            wrong.grown_from(before)


def test_it_survives_json():
    """What is saved is what is read."""
    spec = ClusterSpec(brokers=5, managers=1, ports=(1, 2), postgres=PER_NODE)
    assert ClusterSpec.from_json(spec.to_json()) == spec
