"""Where a request goes: pure. Facts of the request and a view of the cluster in, a route out, or a refusal raised.

Paths are compared as a backend will see them, percent-decoded; what is sent on are the bytes that came. So balancer
and backend cannot read one path in two ways, whatever was encoded in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from myqueue.errors import NotFoundError, UnavailableError, UnknownPartitionError, UnknownTopicError
from myqueue.protocol.names import parse_integer
from myqueue.protocol.types import ClusterSnapshot, TopicPartition

from .health import Health

WRITE, READ = "write", "read"  # a manager's role, as /v1/cluster says it
FROZEN_SECONDS = 2.0  # a manager that is silent for so long is not waited for
REPLACED_SECONDS = 1.0  # nor one that is silent for so long while another one leads


class Destination(Enum):
    """What kind of backend answers. The value is a label of the metrics."""

    NOBODY = "nobody"  # refused: calls between nodes do not pass
    LEADER = "partition_leader"
    WRITER = "write_manager"
    FRESHEST = "write_manager_first"  # soft state: the write manager has it first, a read manager is better than nothing
    READER = "read_manager"


@dataclass(frozen=True, slots=True)
class Facts:
    """What of a request decides: the method, and the path as a backend will see it."""

    method: str
    path: str


@dataclass(frozen=True, slots=True)
class Backend:
    """A node to send to. ``component`` is its name in errors and metrics."""

    component: str
    url: str


@dataclass(frozen=True, slots=True)
class Manager:
    """A manager, as the settings (no role, no id) or the cluster's own table names it."""

    url: str
    node_id: int | None = None
    role: str | None = None

    @property
    def backend(self) -> Backend:
        name = f"manager-{self.node_id}" if self.node_id is not None else f"manager at {self.url.split('://')[-1]}"
        return Backend(name, self.url)


@dataclass(frozen=True, slots=True)
class View:
    """What this process knows of the cluster. ``snapshot`` is None until a manager has answered once."""

    managers: tuple[Manager, ...]
    snapshot: ClusterSnapshot | None = None
    health: Health = field(default_factory=Health)
    term: int = 0  # the highest in which somebody is said to lead
    leader: int | None = None  # who, by node id; None while nobody has said: then the table's roles count


def led_by(view: View) -> View:
    """The view with the managers' roles as its leader makes them."""
    if view.leader is None:
        return view
    return replace(view, managers=tuple(replace(one, role=WRITE if one.node_id == view.leader else READ) for one in view.managers))


def is_lost(view: View, url: str, *, now: float) -> bool:
    """Whether it is no use to wait longer for what was sent to this manager: it does not even answer polls."""
    silent = view.health.silent_seconds(url, now)
    another_leads = view.leader is not None and any(one.role == WRITE and one.url != url for one in view.managers)
    return silent >= FROZEN_SECONDS or (another_leads and silent >= REPLACED_SECONDS)


@dataclass(frozen=True, slots=True)
class Route:
    """Backends in the order to try. The next one only when the last surely did nothing (no connection, not taken), or if ``repeatable``.

    ``repeatable`` is true for plain reads, where doing it twice does no harm. It is never true for a consume.
    """

    destination: Destination
    backends: tuple[Backend, ...]
    repeatable: bool = False


_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_ANY: frozenset[str] = frozenset()
_PARTITION = re.compile(r"/v1/topics/([^/]+)/partitions/([^/]+)(?:/.*)?", re.DOTALL)

# The first row that matches decides.
RULES: tuple[tuple[frozenset[str], re.Pattern[str], Destination], ...] = (
    (_ANY, re.compile(r"/+internal(?:/.*)?", re.DOTALL), Destination.NOBODY),
    (_ANY, re.compile(r"/v1/topics/[^/]+/partitions/[^/]+/(?:elect|move|repair)", re.DOTALL), Destination.WRITER),
    (_ANY, _PARTITION, Destination.LEADER),
    (_ANY, re.compile(r"/consumer/.*|/consumers", re.DOTALL), Destination.READER),
    (_READS, re.compile(r"/health|/broker|/brokers|/v1/health|/v1/brokers"), Destination.FRESHEST),
    (_READS, re.compile(r".*", re.DOTALL), Destination.READER),
    (_ANY, re.compile(r".*", re.DOTALL), Destination.WRITER),
)

_CONSUMES = (  # they hand a message out: never sent twice
    (_ANY, re.compile(r"/consumer/.*", re.DOTALL)),
    (_READS, re.compile(r"/messages|/logs")),
)


def _matches(facts: Facts, methods: frozenset[str], pattern: re.Pattern[str]) -> bool:
    """A backend takes a path with and without a slash at the end for the same one; so do we."""
    path = facts.path.rstrip("/") or "/"
    return (not methods or facts.method in methods) and pattern.fullmatch(path) is not None


def destination_of(facts: Facts) -> Destination:
    return next(destination for methods, pattern, destination in RULES if _matches(facts, methods, pattern))


def is_repeatable(facts: Facts) -> bool:
    """True where sending the request twice does no harm."""
    return facts.method in _READS and not any(_matches(facts, *consume) for consume in _CONSUMES)


def partition_of(facts: Facts) -> TopicPartition:
    """The partition that a native record path names. Raises BadRequestError where its number is none."""
    match = _PARTITION.fullmatch(facts.path.rstrip("/"))
    assert match is not None, f"{facts.path} is no path of a partition"
    return TopicPartition(match[1], parse_integer(match[2], name="partition"))


def route(facts: Facts, view: View, *, turn: int) -> Route:
    """Where this request goes.

    Args:
        turn: a number that grows by one with every call; the read managers take turns by it.

    Raises:
        NotFoundError: the path is not for clients.
        UnknownTopicError, UnknownPartitionError: the table does not hold the partition; a newer table may.
        BadRequestError: a partition that is not a number.
        UnavailableError: nobody can answer it now; ``component`` says who is missing.
    """
    destination = destination_of(facts)
    if destination is Destination.NOBODY:
        raise NotFoundError(f"no such path: {facts.path[:200]}")
    if destination is Destination.LEADER:
        backends: Sequence[Backend] = [leader_of(partition_of(facts), view)]
    else:
        backends = _managers(destination, view, turn)
    return Route(destination, tuple(backends), is_repeatable(facts))


def leader_of(partition: TopicPartition, view: View) -> Backend:
    """The broker that leads a partition. Raises as ``route``."""
    if view.snapshot is None:
        raise UnavailableError("the routing table is not known yet: no manager has answered", component="managers")
    info = view.snapshot.partitions.get(partition)
    if info is None:
        raise _unknown(partition, view.snapshot)
    broker = view.snapshot.brokers.get(info.leader) if info.leader is not None else None
    if broker is None:
        name = f"partition {partition}"
        raise UnavailableError(f"{name} has no leader now" if info.leader is None else f"{name} is led by broker-{info.leader}, whose "
                               "address is not known yet", component=name if info.leader is None else f"broker-{info.leader}")
    return Backend(f"broker-{info.leader}", broker.url)


def _unknown(partition: TopicPartition, snapshot: ClusterSnapshot) -> NotFoundError:
    count = snapshot.partition_count(partition.topic)
    if count == 0:
        return UnknownTopicError(f"topic {partition.topic!r} does not exist", topics=[partition.topic])
    return UnknownPartitionError(f"topic {partition.topic!r} has {count} partition{'s' if count > 1 else ''}: "
                                 f"0 to {count - 1}, not {partition.partition}", partitions=count)


def _managers(destination: Destination, view: View, turn: int) -> list[Backend]:
    """Who may answer, in the order to try. Every manager takes a write: one that does not lead passes it on, or waits for a leader."""
    live = [manager for manager in view.managers if view.health.is_live(manager.url)]
    writers = [manager for manager in live if manager.role == WRITE]
    readers = [manager for manager in live if manager.role != WRITE]
    if readers:
        first = turn % len(readers)
        readers = readers[first:] + readers[:first]
    order = readers + writers if destination is Destination.READER else writers + readers
    backends = [manager.backend for manager in sorted(order, key=lambda manager: view.health.is_slow(manager.url))]
    if not backends:
        raise UnavailableError("no manager answers: " + ", ".join(_ejections(view)), component="managers")
    return backends


def _ejections(view: View) -> list[str]:
    return [f"{manager.backend.component} ({view.health.ejected[manager.url].reason})" for manager in view.managers
            if manager.url in view.health.ejected] or ["none is configured"]
