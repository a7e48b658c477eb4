"""The elections that the write manager runs for partitions: when to begin one, whose promises count, who wins.

What must never happen: a leader without the promises of a majority of the named voters, each with its registered disk, or a
leader behind one of those that promised: it could lack what was committed. When an election is begun is a matter of
liveness only; a coordinator that died in the middle leaves ELECTING behind, and its successor begins a new epoch, because
it cannot know what was promised to the old one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from db.replication import Voters, counts, has_majority, majority
from myqueue.errors import BadRequestError, RefusedError, UnavailableError
from myqueue.protocol.types import PartitionId

FIRST_RETRY_SECONDS, RETRY_SECONDS_MAX = 0.25, 5.0
BALANCE_PASSES = 4


@dataclass(frozen=True, slots=True)
class Replicas:
    """A partition's row of the metadata."""

    partition: PartitionId
    epoch: int
    electing: bool
    leader: int | None
    voters: Mapping[int, str | None]
    learners: tuple[int, ...] = ()
    replication_factor: int = 1  # the goal
    wanted: tuple[int, ...] | None = None  # the brokers that an operator moves it to, as many as the goal says

    def may_stay(self, broker_id: int) -> bool:
        """Whether no move is under way that leads away from this broker."""
        return self.wanted is None or broker_id in self.wanted


@dataclass(frozen=True, slots=True)
class Broker:
    """A registered broker."""

    broker_id: int
    disk_id: str
    draining: bool = False


@dataclass(frozen=True, slots=True)
class Outlook:
    """The brokers as the coordinator sees them now. What it believes of the dead may be wrong: that costs an election."""

    brokers: Mapping[int, Broker]
    dead: frozenset[int] = frozenset()
    lost: frozenset[int] = frozenset()  # dead for so long that what they hold is made again elsewhere

    def is_up(self, broker_id: int) -> bool:
        return broker_id in self.brokers and broker_id not in self.dead

    def disk(self, broker_id: int) -> str | None:
        """The disk that a live broker is registered with; None where it cannot answer."""
        return self.brokers[broker_id].disk_id if self.is_up(broker_id) else None

    def answering(self, voters: Voters) -> dict[int, str]:
        """Whose promises could count now."""
        return {broker_id: disk for broker_id in voters if (disk := self.disk(broker_id)) is not None and counts(voters, broker_id, disk)}

    def can_elect(self, voters: Voters) -> bool:
        """Whether a majority could promise; without one an election would only waste an epoch."""
        return has_majority(voters, self.answering(voters))


@dataclass(frozen=True, slots=True)
class Promise:
    """What a replica answered when it promised an epoch."""

    disk_id: str
    end_epoch: int
    end_lsn: int
    commit_lsn: int = 0
    seeding: bool = False

    @property
    def reach(self) -> tuple[int, int]:
        """How far its log goes: the last entry's epoch first, then the length (Raft 5.4.1)."""
        return self.end_epoch, self.end_lsn


@dataclass(frozen=True, slots=True)
class Ballot:
    """One election: the voters of its epoch and what they promised so far."""

    epoch: int
    voters: Mapping[int, str | None]
    promises: Mapping[int, Promise] = field(default_factory=dict)

    def with_promise(self, broker_id: int, promise: Promise) -> Ballot:
        return replace(self, promises={**self.promises, broker_id: promise})

    def counted(self) -> dict[int, Promise]:
        """The promises that count: of voters, for the registered disk, by who has all of the log that it answers for."""
        return {broker_id: promise for broker_id, promise in self.promises.items()
                if counts(self.voters, broker_id, promise.disk_id) and not promise.seeding}

    def is_decided(self) -> bool:
        return has_majority(self.voters, {broker_id: promise.disk_id for broker_id, promise in self.counted().items()})

    def winners(self) -> tuple[int, ...]:
        """The brokers with the furthest logs among those that count; nobody without a majority."""
        counted = self.counted()
        if not self.is_decided():
            return ()
        furthest = max(promise.reach for promise in counted.values())
        return tuple(sorted(broker_id for broker_id, promise in counted.items() if promise.reach == furthest))


def choose_leader(ballot: Ballot, leaders: Mapping[int, int], *, preferred: int | None = None) -> int | None:
    """Who leads after this election; None where no majority has promised.

    Args:
        leaders: how many partitions each broker leads: among equal logs the one with the fewest wins.
        preferred: wins among equal logs, whatever it leads.
    """
    winners = ballot.winners()
    if preferred in winners:
        return preferred
    return min(winners, key=lambda broker_id: (leaders.get(broker_id, 0), broker_id), default=None)


def election_due(replicas: Replicas, outlook: Outlook, *, begun_here: bool = False, refused: bool = False) -> str | None:
    """Why the partition needs an election now, its voters unchanged; None where it needs none, or none could succeed.

    Args:
        begun_here: this coordinator has begun the present election and is at it.
        refused: the leader said that it cannot take the appointment, or that its replica is damaged.
    """
    if not outlook.can_elect(replicas.voters):
        return None
    if replicas.electing:
        return None if begun_here else "an election was left behind"
    leader = replicas.leader
    if leader is None or leader not in outlook.brokers:
        return "there is no leader"
    if replicas.voters.get(leader) != outlook.brokers[leader].disk_id:
        return f"broker {leader} has lost the disk with which it led"
    if leader in outlook.dead:
        return f"broker {leader} is dead"
    return f"broker {leader} cannot lead" if refused else None


def damaged_leaderships(broker_id: int, statuses: Iterable[Mapping[str, Any]], known: Mapping[PartitionId, Replicas]) -> dict[PartitionId, int]:
    """The partitions that a broker leads by the metadata though its replica was found damaged and serves nothing, with their epochs.

    Such a leader has taken its appointment long ago and is not asked to take it again, so that it refuses nothing by itself. Where the
    others are no majority without it there is nobody to elect, and an election would only waste epochs.

    Args:
        statuses: what the broker says of the partitions it holds.
        known: every partition by the metadata, read after the broker was asked.
    """
    damaged = (PartitionId(one["topic_id"], one["partition"]) for one in statuses if one["fault"] is not None)
    return {partition: known[partition].epoch for partition in damaged
            if partition in known and _can_do_without(known[partition], broker_id)}


def damaged_voters(broker_id: int, statuses: Iterable[Mapping[str, Any]], known: Mapping[PartitionId, Replicas]) -> dict[PartitionId, int]:
    """The partitions that a broker follows as a voter though its replica was found damaged, with their epochs. See ``damaged_leaderships``."""
    damaged = (PartitionId(one["topic_id"], one["partition"]) for one in statuses if one["fault"] is not None)
    return {partition: known[partition].epoch for partition in damaged
            if partition in known and not known[partition].electing and known[partition].leader != broker_id
            and known[partition].voters.get(broker_id) is not None}


def _can_do_without(replicas: Replicas, leader: int) -> bool:
    return not replicas.electing and replicas.leader == leader and len(replicas.voters) > majority(len(replicas.voters))


def retry_seconds(attempt: int) -> float:
    """How long to wait before the next election of a partition whose last ``attempt`` ones found no leader."""
    return min(RETRY_SECONDS_MAX, FIRST_RETRY_SECONDS * 2 ** min(attempt, 10))


def unbalanced(partitions: Iterable[Replicas], outlook: Outlook) -> dict[PartitionId, int]:
    """Leaderships to move, so that live brokers lead equally many of the partitions that they hold: the new leader of each.

    A leadership is moved only to a broker that leads at least two fewer, so that nothing is moved to and fro; and not before a move is done.
    """
    settled = [one for one in partitions if not one.electing and one.leader is not None and outlook.is_up(one.leader)]
    led = dict.fromkeys((broker_id for broker_id in outlook.brokers if outlook.is_up(broker_id)), 0)
    for one in settled:
        led[one.leader] += 1  # type: ignore[index]
    now = {one.partition: one.leader for one in settled}
    for _ in range(BALANCE_PASSES):
        if not _balance_once(settled, outlook, led, now):
            break
    return {one.partition: target for one in settled if (target := now[one.partition]) is not None and target != one.leader}


def _balance_once(settled: Iterable[Replicas], outlook: Outlook, led: dict[int, int], now: dict[PartitionId, int | None]) -> bool:
    moved = False
    for one in settled:
        if one.wanted is not None:
            continue
        leader = now[one.partition]
        takers = [broker_id for broker_id in outlook.answering(one.voters) if not outlook.brokers[broker_id].draining and broker_id != leader]
        target = min(takers, key=lambda broker_id: (led[broker_id], broker_id), default=None)
        if leader is not None and target is not None and led[leader] - led[target] >= 2:
            led[leader] -= 1
            led[target] += 1
            now[one.partition], moved = target, True
    return moved


def choose_next_leader(replicas: Replicas, outlook: Outlook, leaders: Mapping[int, int], *, wanted: int | None = None) -> int:
    """Who is to lead a partition from now on by an operator's wish: the broker that is wanted, or of those that can the one that leads the fewest
    other partitions; the present leader where that one is as good.

    Args:
        leaders: how many partitions each broker leads.

    Raises:
        BadRequestError: the broker that is wanted holds no replica that counts.
        RefusedError: it cannot lead now, or nobody can.
        UnavailableError: an election is under way.
    """
    if wanted is not None and replicas.voters.get(wanted) is None:
        raise BadRequestError(f"broker {wanted} holds no replica of the partition that could lead; those that may are "
                              f"{_listed(one for one, disk in replicas.voters.items() if disk is not None)}", broker_id=wanted)
    if replicas.electing:
        raise UnavailableError("an election of this partition is under way: ask again")
    takers = [one for one in outlook.answering(replicas.voters) if not outlook.brokers[one].draining]
    if not outlook.can_elect(replicas.voters) or not takers:
        raise RefusedError("no majority of the partition's replicas answers: nobody can be elected")
    if wanted is not None:
        if wanted not in takers:
            raise RefusedError(f"broker {wanted} does not answer or is being drained", broker_id=wanted)
        return wanted
    return min(takers, key=lambda one: (leaders.get(one, 0) - (one == replicas.leader), one != replicas.leader, one))


def _listed(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(brokers)))


# --- what a leader says of its partition ---


def is_settled(status: Mapping[str, Any] | None, replicas: Replicas) -> bool:
    """Whether the leader of the present epoch says that it has committed something in it."""
    return status is not None and status["leading"] and status["leader_epoch"] == replicas.epoch and bool(status["committed_in_epoch"])


def is_sound(status: Mapping[str, Any] | None) -> bool:
    """Whether a leader's replica was not found damaged: else others lead soon, and nobody's leaving may rest on it."""
    return status is not None and status["fault"] is None


def has_all(status: Mapping[str, Any] | None, broker_id: int, disk_id: str | None) -> bool:
    """Whether a replica has acknowledged all that its leader says is committed, with its registered disk."""
    told = None if status is None else status["replicas"].get(str(broker_id))
    return told is not None and disk_id is not None and told["disk_id"] == disk_id and not told["disk_lost"] and (
        told["matched_lsn"] >= status["commit_lsn"])  # type: ignore[index]


def is_following(status: Mapping[str, Any] | None, broker_id: int) -> bool:
    """Whether a replica has acknowledged something in its leader's epoch, and is none that is only filled or has lost what it had."""
    told = None if status is None else status["replicas"].get(str(broker_id))
    return told is not None and told["disk_id"] is not None and told["counts"] and not told["disk_lost"]


def is_in_step(status: Mapping[str, Any] | None, replicas: Replicas, broker_id: int) -> bool:
    return status is not None and is_settled(status, replicas) and has_all(status, broker_id, replicas.voters.get(broker_id))
