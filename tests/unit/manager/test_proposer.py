from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from manager.cluster.commands import CreateReplicatedTopic, Noop, RegisterProducers, to_json
from manager.node.role import Role
from manager.node.wal import Answered, Placed
from manager.proposer import Clients, Group, Proposer
from manager.raft.log import Proposal
from manager.raft.state import Contact
from myqueue.errors import NOT_DONE, BadRequestError, MyQueueError, OutcomeUnknownError, UnavailableError, UnreachableError
from myqueue.testing import ManualClock

NOOP = {"type": "noop"}


def test_a_name_is_never_given_twice():
    """One id, its sequence rising; a second id while the first is out."""
    clients = Clients(1)
    names = []
    for _ in range(3):
        with clients.next() as name:
            names.append(name)
    assert [seq for _, seq in names] == [1, 2, 3]
    assert len({client for client, _ in names}) == 1
    with clients.next() as one, clients.next() as two:
        assert one[0] != two[0]


def test_an_id_whose_outcome_is_unknown_is_not_used_again():
    clients = Clients(1)
    with pytest.raises(OutcomeUnknownError), clients.next() as lost:
        raise OutcomeUnknownError
    with pytest.raises(UnavailableError), clients.next() as refused:
        raise UnavailableError
    with clients.next() as after:
        assert after == (refused[0], refused[1] + 1)
        assert after[0] != lost[0]


def test_ids_of_two_processes_differ():
    with Clients(1).next() as one, Clients(1).next() as two:
        assert one[0] != two[0]


def test_each_of_a_group_gets_its_own_outcome():
    group = Group(lambda proposals: [Placed(5, 1)] if proposals[0].client_seq == 1 else [BadRequestError("no")])
    assert group.submit(Proposal(NOOP, "c", 1), 1.0) == Placed(5, 1)
    with pytest.raises(BadRequestError, match="no"):
        group.submit(Proposal(NOOP, "c", 2), 1.0)


def test_what_fails_for_the_group_fails_for_each():
    def write(_proposals):
        raise UnavailableError("database gone")

    with pytest.raises(UnavailableError, match="database gone"):
        Group(write).submit(Proposal(NOOP, "c", 1), 1.0)


class Pauses:
    """Signals of which only the pause is used: time passes by hand."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock

    def stamp(self, key: int) -> int:
        return 0

    def wait(self, key: int, stamp: int, timeout_seconds: float) -> bool:
        self.clock.advance(timeout_seconds)
        return False

    def give(self, *keys: int) -> None:
        """Nobody waits."""


def proposer(*, node_id: int, outcomes: list[Answered | Placed | MyQueueError]) -> Proposer:
    """A proposer whose write manager, or whose own log on the write manager, gives these outcomes, the last one for ever."""
    def next_outcome(*_: object, **__: object) -> Any:
        outcome = outcomes.pop(0) if len(outcomes) > 1 else outcomes[0]
        if isinstance(outcome, MyQueueError):
            raise outcome
        return outcome

    clock = ManualClock()
    role = Role(node_id, clock, leader_kept_seconds=60.0)
    role.lead(1) if node_id == 1 else role.note_contact(Contact(clock.monotonic(), 1), 1)
    replica = SimpleNamespace(wait_for=lambda index, timeout_seconds: True, note_written=lambda index: None)
    return Proposer(wal=SimpleNamespace(propose=lambda proposals: [next_outcome()]), role=role,  # type: ignore[arg-type]
                    replica=replica, peers=SimpleNamespace(propose=next_outcome),  # type: ignore[arg-type]
                    signals=Pauses(clock), clock=clock, live_brokers=tuple, heard_brokers=tuple,
                    absent_brokers=tuple, late_brokers=tuple, timeout_seconds=2.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("second", [UnreachableError("down"), UnavailableError("no majority; nothing was done")])
def test_after_an_answer_was_lost_no_refusal_says_that_nothing_was_done(second: MyQueueError):
    """The write manager took the command and died; what the next attempt meets is of that attempt only."""
    with pytest.raises(OutcomeUnknownError):
        proposer(node_id=2, outcomes=[OutcomeUnknownError(), second]).propose(Noop())


def test_a_command_in_doubt_is_asked_for_until_its_answer_is_there():
    outcomes = [OutcomeUnknownError(), UnreachableError("down"), UnavailableError("starting"), Answered(7, {"result": {"a": 1}})]
    assert proposer(node_id=2, outcomes=outcomes).propose(Noop()) == {"a": 1}


def test_without_doubt_a_refusal_is_told_as_it_is():
    with pytest.raises(UnavailableError, match="nothing was done") as refused:
        proposer(node_id=2, outcomes=[UnreachableError("down")]).propose(Noop())
    assert refused.value.outcome == NOT_DONE


def test_a_lost_commit_that_cannot_be_looked_up_stays_in_doubt():
    """The database went away with the commit: the command may stand in the log, and be done later."""
    with pytest.raises(OutcomeUnknownError):
        proposer(node_id=1, outcomes=[OutcomeUnknownError(), UnavailableError("database gone")]).propose(Noop())


def test_a_command_that_was_written_stays_in_doubt_when_the_database_goes_away():
    """It stands in the log and others may have it: a look that fails says nothing of what became of it."""
    asked = proposer(node_id=1, outcomes=[Placed(5, 1)])

    def gone(*_: object) -> int:
        raise UnavailableError("database gone")

    asked._replica.applied_index = gone  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknownError, match="database gone"):
        asked.execute(Proposal(NOOP, "c", 1))


def written_by(asked: Proposer) -> list[dict[str, Any]]:
    """The commands it writes from now on, as they are read."""
    written: list[dict[str, Any]] = []

    def write(proposals: list[Proposal]) -> list[Answered]:
        written.extend(proposal.command for proposal in proposals)
        return [Answered(7, {"result": {}})]

    asked._group = Group(write)
    asked._replica.settle = lambda: None  # type: ignore[method-assign]
    return written


def test_a_leader_that_was_just_elected_catches_up_before_it_says_which_brokers_are_alive():
    """Else a topic that is made right after an election would get fewer replicas than there are brokers, or be refused."""
    asked, known = proposer(node_id=1, outcomes=[Answered(7, {"result": {}})]), [1]
    written = written_by(asked)
    asked._live_brokers = asked._heard_brokers = lambda: tuple(known)
    asked._absent_brokers = lambda brokers: tuple(brokers)[1:]
    asked._replica.settle = lambda: known.append(2)  # type: ignore[method-assign]
    asked.execute(Proposal(to_json(CreateReplicatedTopic("t")), "c", 1))
    asked.execute(Proposal(NOOP, "c", 2))
    assert [([1, 2], [2]), (None, None)] == [(command.get("live_brokers"), command.get("absent_brokers")) for command in written]


@pytest.mark.parametrize(("heard", "absent", "live", "named"), [
    ((), (), [1, 2, 3], []),
    ((), (3,), [1, 2], []),
    ((1,), (1,), [1, 2, 3], [1]),
    ((1,), (1, 3), [1, 2], [1]),
    ((), (1, 2, 3), [1, 2, 3], [1, 2, 3]),
])
def test_of_brokers_that_a_new_write_manager_only_believes_in_the_door_decides(heard: tuple[int, ...], absent: tuple[int, ...], live: list[int],
                                                                                named: list[int]):
    """One that was heard of lately, and at whose door nobody is, restarts: it gets replicas and leads none. With nobody anywhere all are taken."""
    asked = proposer(node_id=1, outcomes=[Answered(7, {"result": {}})])
    written = written_by(asked)
    asked._live_brokers, asked._heard_brokers, asked._absent_brokers = lambda: (1, 2, 3), lambda: heard, lambda brokers: absent
    asked.execute(Proposal(to_json(CreateReplicatedTopic("t")), "c", 1))
    assert [(live, named)] == [(command["live_brokers"], command.get("absent_brokers", [])) for command in written]


def test_a_broker_that_is_late_and_says_that_it_is_ready_gets_replicas():
    """One that is only believed in, and at whose door nobody is, gets none."""
    asked = proposer(node_id=1, outcomes=[Answered(7, {"result": {}})])
    written = written_by(asked)
    asked._live_brokers, asked._heard_brokers, asked._late_brokers = lambda: (1, 4), lambda: (1,), lambda: (3,)
    asked._absent_brokers = lambda brokers: tuple(set(brokers) & {2, 4})
    asked.execute(Proposal(to_json(CreateReplicatedTopic("t")), "c", 1))
    assert [[1, 3]] == [command["live_brokers"] for command in written]


@pytest.mark.parametrize(("create", "known", "looked"), [(True, {"t", "u"}, 0), (True, {"t"}, 1), (False, {"t"}, 0)])
def test_nobody_looks_at_the_brokers_doors_where_nothing_is_made(create, known, looked):
    """Most producers register for topics that are there."""
    asked, looks = proposer(node_id=1, outcomes=[Answered(7, {"result": {}})]), []
    asked._replica.settle = lambda: None  # type: ignore[method-assign]
    asked._replica.catalogue = lambda: SimpleNamespace(topics=dict.fromkeys(known))  # type: ignore[method-assign,assignment,return-value]
    asked._late_brokers = lambda: (looks.append("whether suspect ones are ready"), ())[1]
    asked._absent_brokers = lambda brokers: (looks.append("whether somebody listens"), ())[1]
    asked.execute(Proposal(to_json(RegisterProducers(("t", "u"), create=create)), "c", 1))
    assert 2 * looked == len(looks)


def test_a_command_that_was_done_is_not_refused_because_this_manager_cannot_show_it():
    asked = proposer(node_id=2, outcomes=[Answered(7, {"result": {}})])

    def gone(*_: object) -> bool:
        raise UnavailableError("database gone")

    asked._replica.wait_for = gone  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknownError, match="database gone"):
        asked.propose(Noop())
