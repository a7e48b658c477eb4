"""Two folds of the same commands, written apart: the managers' apply and the audit's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from manager.cluster import commands, state
from manager.cluster.memory import MemoryMetadata
from pipeline.audit.metadata_fold import KEYS, Metadata, fold

NAMES = st.sampled_from(["a", "b", "c", "no/name", ""])
LISTS = st.lists(NAMES, max_size=3).map(tuple)
LIVE = st.none() | st.lists(st.integers(1, 4), max_size=3).map(tuple)
ABSENT = st.lists(st.integers(1, 4), max_size=3).map(tuple)
TIMES = st.integers(0, 10**15)
COMMANDS = st.one_of(
    st.just(commands.Noop()),
    st.builds(commands.InitCluster, st.sampled_from(["c1", "c2"]), st.just((commands.Member(1, "http://h:1", "d1"),))),
    st.builds(commands.AddBroker, st.sampled_from(["d1", "d2", "d3"]), st.just("h"), st.integers(1, 9), st.just({"host": "h"})),
    st.builds(commands.RemoveBroker, st.integers(1, 4)),
    st.builds(commands.CreateTopic, NAMES, st.integers(0, 4), st.integers(1, 2), st.just({}), TIMES, LIVE),
    st.builds(commands.DeleteTopic, NAMES),
    st.builds(commands.CreateReplicatedTopic, NAMES, st.integers(0, 4), st.none() | st.integers(0, 4), st.just({}), TIMES, LIVE, ABSENT),
    st.builds(commands.AddPartition, NAMES, LIVE, ABSENT),
    st.builds(commands.AddPartitions, NAMES, st.integers(1, 3), st.integers(0, 5), LIVE, ABSENT),
    st.builds(commands.RegisterProducers, LISTS, st.booleans(), TIMES, LIVE, st.booleans(), ABSENT),
    st.builds(commands.RegisterConsumers, LISTS, st.sampled_from(["earliest", "latest", "other"]), TIMES))
ASSIGNED = st.lists(st.builds(commands.Assigned, st.integers(1, 2), st.integers(0, 2), st.integers(1, 4)), max_size=5).map(tuple)
GROUP_COMMANDS = st.one_of(
    st.builds(commands.JoinGroup, st.sampled_from(["g", "h", "no/name"]), st.sampled_from(["one", "two", "three", ""]), LISTS,
              st.sampled_from(["sticky", "sticky", "range", "other"]), st.sampled_from(["earliest", "latest"]),
              st.sampled_from([6_000, 10_000, 5_999]), TIMES),
    st.builds(commands.LeaveGroup, st.integers(1, 2), st.lists(st.integers(1, 4), max_size=2).map(tuple)),
    st.builds(commands.AssignPartitions, st.integers(1, 2), st.integers(1, 8), ASSIGNED),
    st.builds(commands.ReleasePartitions, st.integers(1, 2), ASSIGNED),
    st.builds(commands.DeleteGroup, st.sampled_from(["g", "h"])), st.builds(commands.DeleteTopic, st.just("b")))
DISKS = {"1": "d1", "2": "d2", "3": "d3"}
VOTERS = st.sets(st.sampled_from(sorted(DISKS)), max_size=3).map(lambda slots: {slot: DISKS[slot] for slot in slots})
SOME = st.lists(st.integers(1, 4), max_size=4).map(tuple)
PLACE, EPOCH = (st.just(1), st.integers(0, 1)), st.integers(1, 5)
ELECTION = st.builds(commands.BeginElection, *PLACE, EPOCH, VOTERS | VOTERS.map(lambda voters: {**voters, "1": None}))
APPOINTMENT = st.builds(commands.AppointLeader, *PLACE, EPOCH, st.integers(1, 3))
PLACE_COMMANDS = st.one_of(
    st.builds(commands.MovePartitions, st.lists(st.builds(commands.Move, *PLACE, st.none() | SOME), max_size=3).map(tuple)),
    st.builds(commands.BeginElections, st.lists(ELECTION, min_size=1, max_size=2).map(tuple)),
    st.builds(commands.ForceElections, st.lists(ELECTION, min_size=1, max_size=1).map(tuple)),
    st.builds(commands.AppointLeaders, st.lists(APPOINTMENT, min_size=1, max_size=3).map(tuple)),
    st.builds(commands.SetLearners, st.lists(st.builds(commands.Learners, *PLACE, EPOCH, SOME), min_size=1, max_size=2).map(tuple)),
    st.builds(commands.DrainBroker, st.integers(1, 4), st.booleans()), st.builds(commands.RemoveBroker, st.integers(1, 4)))
THREE_BROKERS = [*(commands.AddBroker(disk, "h", 1, {"host": "h"}) for disk in DISKS.values()),
                 commands.CreateReplicatedTopic("a", 2, 2, live_brokers=(1, 2, 3))]
BROKER_AND_TOPICS = [commands.AddBroker("d1", "h", 1, {"host": "h"}), commands.CreateTopic("a", 3, live_brokers=(1,)),
                     commands.CreateTopic("b", 1, live_brokers=(1,))]


@settings(max_examples=300, deadline=None)
@given(st.lists(COMMANDS, max_size=25))
def test_the_audit_folds_commands_to_what_the_managers_apply(sequence: list[commands.Command]) -> None:
    """Whatever the commands, refused ones included, both say the same rows."""
    applied, folded = MemoryMetadata(), Metadata()
    for index, command in enumerate(sequence, 1):
        applied.write(state.apply(applied, command).changes)
        fold(folded, index, commands.to_json(command))
    assert _rows_of(applied) == {table: _sorted(rows.values()) for table, rows in folded.tables.items()}


@settings(max_examples=300, deadline=None)
@given(st.lists(GROUP_COMMANDS, max_size=25))
def test_the_audit_folds_consumer_groups_to_what_the_managers_apply(sequence: list[commands.Command]) -> None:
    """And on the way no partition is ever owned by two members, and none passes to another one without a newer generation."""
    applied, folded, since = MemoryMetadata(), Metadata(), {}
    for index, command in enumerate([*BROKER_AND_TOPICS, *sequence], 1):
        applied.write(state.apply(applied, command).changes)
        fold(folded, index, commands.to_json(command))
        since = _owned(applied, since)
    assert _rows_of(applied) == {table: _sorted(rows.values()) for table, rows in folded.tables.items()}


@settings(max_examples=300, deadline=None)
@given(st.lists(PLACE_COMMANDS, max_size=25))
def test_the_audit_folds_elections_and_moves_to_what_the_managers_apply(sequence: list[commands.Command]) -> None:
    """And at any time a wish names different brokers that may be used, as many as the replication factor says, and is not fulfilled yet."""
    applied, folded = MemoryMetadata(), Metadata()
    for index, command in enumerate([*THREE_BROKERS, *sequence], 1):
        applied.write(state.apply(applied, command).changes)
        fold(folded, index, commands.to_json(command))
        usable = {row["broker_id"] for row in applied.find("broker", status="ACTIVE")}
        for row in applied.find("partition"):
            wanted = row["wanted"]
            assert wanted is None or (set(wanted) <= usable and len(set(wanted)) == row["replication_factor"])
            assert wanted is None or {str(one) for one in wanted} != row["voters"].keys() or None in row["voters"].values()
    assert _rows_of(applied) == {table: _sorted(rows.values()) for table, rows in folded.tables.items()}


def _owned(applied: MemoryMetadata, before: dict[tuple[int, str], tuple[int, int]]) -> dict[tuple[int, str], tuple[int, int]]:
    """Who owns what of each group and in which generation, compared with how it was before."""
    now: dict[tuple[int, str], tuple[int, int]] = {}
    for row in applied.find("group_member"):
        for name, generation in row["owned"].items():
            place = row["group_id"], name
            assert place not in now, f"{name} is owned twice"
            now[place] = generation, row["member_id"]
    last = dict(before)
    for place, (generation, member_id) in now.items():
        earlier = last.get(place)
        assert earlier is None or generation > earlier[0] or (generation, member_id) == earlier
        last[place] = generation, member_id
    return last


def _rows_of(applied: MemoryMetadata) -> dict[str, list[dict[str, Any]]]:
    tables = {table: list(applied.tables.get(table, {}).values()) for table in KEYS if table != "cluster"}
    tables["cluster"] = [{"cluster_id": row["cluster_id"]} for row in applied.tables.get("raft_state", {}).values()]
    return {table: _sorted(rows) for table, rows in tables.items()}


def _sorted(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(({name: row[name] for name in sorted(row)} for row in rows), key=repr)
