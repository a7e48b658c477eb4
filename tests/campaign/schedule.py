"""PURE. Which fault strikes whom, when and for how long: all of it from a seed, so that a schedule can be run again."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WARM_UP_SECONDS = 3.0
ANYONE = "*"  # as one end of a link: every node, and the clients


@dataclass(frozen=True, slots=True)
class Nodes:
    """Whom faults can strike, by name."""

    brokers: tuple[str, ...]
    managers: tuple[str, ...]
    servers: tuple[str, ...]  # PostgreSQL
    balancer: str = "balancer"

    @property
    def services(self) -> tuple[str, ...]:
        return (*self.brokers, *self.managers, self.balancer)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: it begins ``at_seconds`` after the start and is over ``seconds`` later.

    ``victims`` are nodes, or the two ends (from, to) of a link. ``amount`` is what the kind needs: seconds of delay or of a clock's jump.
    """

    kind: str
    at_seconds: float
    seconds: float
    victims: tuple[str, ...]
    amount: float = 0.0

    def __str__(self) -> str:
        arrow = "→" if KINDS[self.kind].pick in LINKS and len(self.victims) == 2 else ", "
        more = f" ({self.amount:+.3g} s)" if self.amount else ""
        return f"{self.at_seconds:6.1f} s  {self.kind} {arrow.join(self.victims)}{more} for {self.seconds:.1f} s"


# How victims are drawn.
PICK_BROKER, PICK_MANAGER, PICK_SERVER, PICK_BALANCER, PICK_SERVICE, PICK_ANY = "broker", "manager", "server", "balancer", "service", "any"
PICK_MAJORITY, PICK_MANAGERS, PICK_BROKERS, PICK_ALL = "majority", "managers", "brokers", "all"
PICK_LINK, PICK_REPLY, PICK_DATABASE_LINK, PICK_MANAGER_LINKS = "link", "reply", "database link", "manager links"
PICK_WRITE_MANAGER, PICK_NEW_BROKER = "write manager", "new broker"
LINKS = frozenset({PICK_LINK, PICK_REPLY, PICK_DATABASE_LINK, PICK_MANAGER_LINKS})
WRITE_MANAGER = "write-manager"  # a victim that only the moment names
NEW_BROKER = "new-broker"  # one more than there are


@dataclass(frozen=True, slots=True)
class Kind:
    """How a kind of fault is drawn: its victims, how long it lasts, how much."""

    pick: str
    seconds: tuple[float, float]
    amount: tuple[float, float] = (0.0, 0.0)
    is_big: bool = False  # it strikes so much that nothing else is done meanwhile


KINDS: Mapping[str, Kind] = {
    "kill_broker": Kind(PICK_BROKER, (0.2, 4.0)),
    "kill_manager": Kind(PICK_MANAGER, (0.2, 4.0)),
    "kill_write_manager": Kind(PICK_WRITE_MANAGER, (0.2, 4.0)),
    "kill_balancer": Kind(PICK_BALANCER, (0.2, 2.0)),
    "kill_postgres": Kind(PICK_SERVER, (0.2, 4.0)),  # the whole group
    "kill_backend": Kind(PICK_SERVER, (0.5, 1.0)),  # one process of it: the server restarts itself
    "stop_postgres_at_once": Kind(PICK_SERVER, (0.5, 2.0)),
    "restart": Kind(PICK_ANY, (0.2, 3.0)),  # a clean stop, and started again
    "pause": Kind(PICK_ANY, (0.5, 6.0)),
    "pause_write_manager": Kind(PICK_WRITE_MANAGER, (1.0, 6.0)),
    "pause_managers": Kind(PICK_MANAGERS, (1.0, 5.0)),  # as when their host stands still: all of them find their leader silent at once
    "cut_one_way": Kind(PICK_LINK, (1.0, 8.0)),
    "cut_two_ways": Kind(PICK_LINK, (1.0, 8.0)),
    "slow_link": Kind(PICK_LINK, (2.0, 8.0), (0.05, 0.4)),
    "slow_managers": Kind(PICK_MANAGER_LINKS, (4.0, 10.0), (0.1, 0.3)),
    "slow_database": Kind(PICK_DATABASE_LINK, (2.0, 6.0), (0.02, 0.2)),
    "cut_database": Kind(PICK_DATABASE_LINK, (1.0, 6.0)),
    "lose_database_reply": Kind(PICK_DATABASE_LINK, (0.5, 2.0)),  # in the middle of a commit, among others
    "lose_reply": Kind(PICK_REPLY, (1.0, 4.0)),  # done, and nobody is told
    "reset_in_reply": Kind(PICK_REPLY, (1.0, 4.0)),
    "kill_manager_majority": Kind(PICK_MAJORITY, (0.5, 3.0)),
    "kill_managers": Kind(PICK_MANAGERS, (0.2, 2.0)),
    "kill_brokers": Kind(PICK_BROKERS, (0.2, 2.0)),
    "kill_all": Kind(PICK_ALL, (0.2, 1.0), is_big=True),
    "restart_rolling": Kind(PICK_BROKERS, (0.5, 1.0), is_big=True),
    "disk_full": Kind(PICK_SERVER, (1.0, 4.0)),  # by a limit on the size of its files
    "drain_broker": Kind(PICK_BROKER, (3.0, 8.0)),  # its replicas are given up as far as they can be, and come back
    "add_broker": Kind(PICK_NEW_BROKER, (8.0, 12.0)),  # and drained again; removed once everything is healed
    "clock_jump": Kind(PICK_SERVICE, (2.0, 8.0), (-86_400.0, 86_400.0)),
}


def make_schedule(seed: int, nodes: Nodes, *, seconds: float, pause_seconds: float = 5.0, only: Sequence[str] = ()) -> list[Fault]:
    """The faults of one campaign, by their beginning.

    Kinds come like cards from a shuffled deck, so that a long campaign has all of them equally often. Faults may overlap, but no node or
    link is struck while it still suffers, nothing happens beside a big one, and all are over by the end.

    Args:
        pause_seconds: between the beginnings of two faults, on average.
        only: kinds to draw from; all of them by default.
    """
    chance = random.Random(seed)
    kinds = [name for name in KINDS if _is_possible(KINDS[name], nodes)] if not only else list(only)
    faults: list[Fault] = []
    deck: list[str] = []
    at = WARM_UP_SECONDS
    while at < seconds:
        if not deck:
            deck = chance.sample(kinds, len(kinds))
        kind = deck.pop()
        victims = _draw(KINDS[kind].pick, nodes, chance)
        lasts, amount = chance.uniform(*KINDS[kind].seconds), chance.uniform(*KINDS[kind].amount)
        at = max(at, _free_at(faults, kind, victims))
        if at + lasts > seconds:
            break
        faults.append(Fault(kind, round(at, 3), round(lasts, 3), victims, round(amount, 3)))
        at += pause_seconds * chance.uniform(0.4, 1.6)
    return faults


def _free_at(faults: Sequence[Fault], kind: str, victims: tuple[str, ...]) -> float:
    """From when on a fault disturbs none that is under way with the same victims."""
    ends = [fault.at_seconds + fault.seconds for fault in faults
            if KINDS[fault.kind].is_big or KINDS[kind].is_big or _disturbs(fault, kind, victims)]
    return max(ends, default=0.0)


def _disturbs(fault: Fault, kind: str, victims: tuple[str, ...]) -> bool:
    """Nodes and links are apart: a node may die while its links are slow. Who the write manager is, nobody knows before."""
    if (KINDS[fault.kind].pick in LINKS) != (KINDS[kind].pick in LINKS):
        return False
    if KINDS[kind].pick in LINKS:
        return fault.victims == victims
    return bool(set(_possible(fault.victims)) & set(_possible(victims)))


def _possible(victims: tuple[str, ...]) -> tuple[str, ...]:
    """The victims, and "write-manager" beside every manager: it may be that one."""
    return (*victims, WRITE_MANAGER) if any(name.startswith("manager-") for name in victims) else victims


def _is_possible(kind: Kind, nodes: Nodes) -> bool:
    if kind.pick == PICK_SERVER:
        return bool(nodes.servers)
    if kind.pick == PICK_NEW_BROKER:
        return len(nodes.servers) > 1  # one that all share has no room for many more
    if kind.pick in (PICK_MAJORITY, PICK_MANAGER_LINKS, PICK_WRITE_MANAGER):
        return len(nodes.managers) > 2
    return True


def _draw(pick: str, nodes: Nodes, chance: random.Random) -> tuple[str, ...]:
    if pick in _ONE_OF:
        return (chance.choice(_ONE_OF[pick](nodes)),)
    if pick == PICK_MAJORITY:
        return tuple(sorted(chance.sample(nodes.managers, len(nodes.managers) // 2 + 1)))
    if pick in _GROUPS:
        return _GROUPS[pick](nodes)
    if pick == PICK_DATABASE_LINK:
        owner = chance.choice((*nodes.brokers, *nodes.managers))
        return owner, f"{owner}.database"
    target = chance.choice(nodes.services)
    if pick == PICK_REPLY:
        return ANYONE, target
    callers = [*nodes.services, "clients", ANYONE]
    callers.remove(target)
    return chance.choice(callers), target


_ONE_OF = {PICK_BROKER: lambda nodes: nodes.brokers, PICK_MANAGER: lambda nodes: nodes.managers, PICK_SERVER: lambda nodes: nodes.servers,
           PICK_BALANCER: lambda nodes: (nodes.balancer,), PICK_SERVICE: lambda nodes: (*nodes.brokers, *nodes.managers),
           PICK_ANY: lambda nodes: (*nodes.services, *nodes.servers), PICK_WRITE_MANAGER: lambda nodes: (WRITE_MANAGER,),
           PICK_NEW_BROKER: lambda nodes: (NEW_BROKER,)}
_GROUPS = {PICK_MANAGERS: lambda nodes: nodes.managers, PICK_BROKERS: lambda nodes: nodes.brokers, PICK_MANAGER_LINKS: lambda nodes: nodes.managers,
           PICK_ALL: lambda nodes: (*nodes.services, *nodes.servers)}
