"""Which broker holds a replica: what to change next about a partition's voters and learners, one step at a time.

What must never happen: a learner that becomes a voter before it has caught up, or voters that change before the present
leader has committed something in its epoch. Until then what was committed before may be on a majority of the *old* voters
only, and after a second change a majority may know nothing of it.

The rest is which step helps: out with a disk that was replaced or a replica that is damaged, in with who has caught up, out with who leaves once
somebody stands in for it, and somebody new to learn where there are too few.

Where an operator wants the replicas on named brokers (``wanted``), they and nobody else learn, one after the other, and nobody leaves before all of
them are voters that follow the leader: while one of them is away nothing is taken from the partition. Then the others leave, those that do not follow
first and the leader last, and each only where a majority of those that are left follows. Only where no slot is left for the next one somebody leaves
earlier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from db.replication import has_majority
from manager.cluster.election import Outlook, Replicas
from myqueue.protocol.limits import FACTOR_MAX


@dataclass(frozen=True, slots=True)
class ChangeVoters:
    """To be done by an election."""

    voters: Mapping[int, str | None]


@dataclass(frozen=True, slots=True)
class ChangeLearners:
    """To be done without one."""

    learners: tuple[int, ...]


Step = ChangeVoters | ChangeLearners


def next_step(replicas: Replicas, outlook: Outlook, *, settled: bool, caught_up: frozenset[int], held: Mapping[int, int],
              following: frozenset[int] = frozenset(), damaged: frozenset[int] = frozenset()) -> Step | None:
    """What to change next; None where all is as it should be, or nothing can be done now.

    Args:
        settled: the leader says that it has committed in the present epoch.
        caught_up: the learners that hold, by what the leader of the present epoch says, all that is committed.
        held: how many partitions each broker holds; who holds the fewest gets more.
        following: the voters that have acknowledged something in the present epoch, by what its leader says; needed while a move is under way.
        damaged: voters whose replica was found damaged in the present epoch; not its leader.
    """
    leader = replicas.leader
    if replicas.electing or leader is None or not outlook.is_up(leader):
        return None
    learners = tuple(one for one in replicas.learners if _may_learn(replicas, outlook, one))
    if learners != replicas.learners:
        return ChangeLearners(learners)
    step = (_emptied(replicas, outlook, damaged) or _filled(replicas, outlook, caught_up)
            or _released(replicas, outlook, following - damaged | {leader}))
    if step is not None:
        return step if settled and outlook.can_elect(step.voters) else None
    return None if learners else _recruited(replicas, outlook, held)


def leaving(replicas: Replicas, outlook: Outlook) -> list[int]:
    """Voters that are to hold nothing any more: removed, drained, or dead for long; in a move those that are not wanted.

    In the order in which they leave: who is gone for good first, who does not count now next, the leader last.
    """
    answering = outlook.answering(replicas.voters)

    def gone(broker_id: int) -> bool:
        return broker_id not in outlook.brokers or broker_id in outlook.lost

    def leaves(broker_id: int) -> bool:
        return not replicas.may_stay(broker_id) if replicas.wanted is not None else gone(broker_id) or outlook.brokers[broker_id].draining

    return sorted(filter(leaves, replicas.voters), key=lambda one: (not gone(one), one in answering, one == replicas.leader, one))


def needs_attention(replicas: Replicas, outlook: Outlook) -> bool:
    """Whether ``next_step`` could have something to say about it."""
    if replicas.learners or replicas.wanted is not None or len(replicas.voters) != replicas.replication_factor:
        return True
    return any(broker_id not in outlook.brokers or broker_id in outlook.lost or outlook.brokers[broker_id].draining
               or disk_id != outlook.brokers[broker_id].disk_id for broker_id, disk_id in replicas.voters.items())


def _may_learn(replicas: Replicas, outlook: Outlook, broker_id: int) -> bool:
    known = outlook.brokers.get(broker_id)
    return (known is not None and broker_id not in outlook.lost and not known.draining and replicas.may_stay(broker_id)
            and replicas.voters.get(broker_id) != known.disk_id)


def _emptied(replicas: Replicas, outlook: Outlook, damaged: frozenset[int]) -> ChangeVoters | None:
    """A slot counts for nobody whose disk is not the registered one any more, or whose replica is damaged: emptied, to be filled again.

    Where the others are no majority without it, other steps go on: somebody else may take its place.
    """
    for broker_id, disk_id in replicas.voters.items():
        known = outlook.brokers.get(broker_id)
        if disk_id is None or known is None or len(replicas.voters) == 1:
            continue
        emptied = {**replicas.voters, broker_id: None}
        if (known.disk_id != disk_id or broker_id in damaged) and outlook.can_elect(emptied):
            return ChangeVoters(emptied)
    return None


def _filled(replicas: Replicas, outlook: Outlook, caught_up: frozenset[int]) -> ChangeVoters | None:
    for broker_id in replicas.learners:
        disk_id = outlook.disk(broker_id)
        if broker_id in caught_up and disk_id is not None and (broker_id in replicas.voters or not _is_full(replicas)):
            return ChangeVoters({**replicas.voters, broker_id: disk_id})
    return None


def _released(replicas: Replicas, outlook: Outlook, following: frozenset[int]) -> ChangeVoters | None:
    """One slot less: of who leaves, once the others are as many as there should be, nobody can stand in, or no slot is left; or of one too many."""
    out = leaving(replicas, outlook)
    staying = [one for one in replicas.voters if one not in out]
    if replicas.wanted is not None:
        return _moved_on(replicas, outlook, out, following) if out else None
    surplus = len(replicas.voters) > replicas.replication_factor
    replaced = surplus and (len(staying) >= replicas.replication_factor or _is_full(replicas))
    if out and staying and (replaced or _is_drained_for_good(replicas, outlook, out[0])):
        return _without(replicas, out[0])
    if surplus and not out:
        empty = [one for one in staying if replicas.voters[one] is None or not outlook.is_up(one)]
        return _without(replicas, max(empty or [one for one in staying if one != replicas.leader]))
    return None


def _moved_on(replicas: Replicas, outlook: Outlook, out: list[int], following: frozenset[int]) -> ChangeVoters | None:
    """One of these leaves, once every broker that is wanted has arrived: a voter that counts, and has shown in this epoch that it is sound."""
    sound = {one: disk_id for one, disk_id in outlook.answering(replicas.voters).items() if one in following and one not in outlook.lost}
    wanted = set(replicas.wanted or ())
    needs_room = _is_full(replicas) and not replicas.voters.keys() >= wanted
    step = _without(replicas, min(out, key=lambda one: one in sound))
    return step if (sound.keys() >= wanted or needs_room) and has_majority(step.voters, sound) else None


def _is_full(replicas: Replicas) -> bool:
    """No slot more is possible: the one that a partition may have while it moves is taken."""
    return len(replicas.voters) > FACTOR_MAX


def _is_drained_for_good(replicas: Replicas, outlook: Outlook, broker_id: int) -> bool:
    """It is drained by an operator, and there is no broker that could take its place: the partition goes on with fewer replicas."""
    known = outlook.brokers.get(broker_id)
    return (known is None or known.draining) and not replicas.learners and not _candidates(replicas, outlook)


def _without(replicas: Replicas, broker_id: int) -> ChangeVoters:
    return ChangeVoters({slot: disk_id for slot, disk_id in replicas.voters.items() if slot != broker_id})


def _recruited(replicas: Replicas, outlook: Outlook, held: Mapping[int, int]) -> ChangeLearners | None:
    """Somebody to learn: the broker of an empty slot, or a new one where fewer than the goal are going to stay."""
    for broker_id, disk_id in replicas.voters.items():
        if disk_id is None and replicas.may_stay(broker_id) and outlook.is_up(broker_id) and not outlook.brokers[broker_id].draining:
            return ChangeLearners((broker_id,))
    out = leaving(replicas, outlook)
    if len(replicas.voters) - len(out) >= replicas.replication_factor or _is_full(replicas):
        return None
    found = min(_candidates(replicas, outlook), key=lambda one: (held.get(one, 0), one), default=None)
    return None if found is None else ChangeLearners((found,))


def _candidates(replicas: Replicas, outlook: Outlook) -> list[int]:
    return [one for one, broker in outlook.brokers.items()
            if outlook.is_up(one) and not broker.draining and replicas.may_stay(one) and one not in replicas.voters]
