from __future__ import annotations

import pytest

from manager.cluster.commands import Noop
from manager.node.wal import Placed, Proposal
from manager.proposer import Clients, Group
from myqueue.errors import BadRequestError, OutcomeUnknownError, UnavailableError


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
    assert group.submit(Proposal(Noop(), "c", 1), 1.0) == Placed(5, 1)
    with pytest.raises(BadRequestError, match="no"):
        group.submit(Proposal(Noop(), "c", 2), 1.0)


def test_what_fails_for_the_group_fails_for_each():
    def write(_proposals):
        raise UnavailableError("database gone")

    with pytest.raises(UnavailableError, match="database gone"):
        Group(write).submit(Proposal(Noop(), "c", 1), 1.0)
