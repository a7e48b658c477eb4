"""Who was heard of: collected in memory, written and passed on once a second, looked at for who fell silent.

Soft state, so none of it goes through the log. A read manager passes what it hears to the write manager, whose table is
the complete one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping

from db.metadata_store import HeartbeatRow, HeartbeatStore
from manager.catalogue import Catalogue, brokers_of
from manager.cluster.election import Outlook
from manager.cluster.liveness import Actor, State, Thresholds, heard_age, observe
from manager.lives import Lives
from manager.node.role import Role
from manager.node.transport import Peers
from manager.replica import Replica
from myqueue.clock import Clock
from myqueue.errors import MyQueueError, OverloadedError
from myqueue.service import metrics

ACTORS_MAX = 100_000  # waiting to be written
NODES, CLIENTS = ("broker", "manager"), ("producer", "consumer")
CLIENT_CHECK_TURNS = 5  # clients are many and slow to die: looked at every fifth time
FORGET_TURNS = 3_600
CLIENTS_KEPT_SECONDS = 86_400.0
NODES_KEPT_SECONDS = 0.4  # between reads of the nodes' heartbeats, which are a second apart: many ask for them
_log = logging.getLogger(__name__)


class HeartbeatBook:
    """What one worker process has heard and not yet written. Safe to call from any thread; hearing costs no I/O."""

    def __init__(self, store: HeartbeatStore, *, role: Role, peers: Peers, lives: Lives, clock: Clock) -> None:
        self._store, self._role, self._peers, self._lives, self._clock = store, role, peers, lives, clock
        self._lock = threading.Lock()
        self._heard: dict[Actor, float] = {}
        self._to_pass: dict[Actor, float] = {}

    def heard(self, type: str, actor_id: int, age_seconds: float = 0.0) -> None:
        """Note that an actor showed itself, so many seconds ago."""
        self._merge(self._heard, {Actor(type, actor_id): self._clock.monotonic() - max(0.0, age_seconds)})

    def flush(self) -> None:
        """Write what was heard since the last time, and pass it on. What could not be passed on goes with the next turn."""
        with self._lock:
            heard, self._heard = self._heard, {}
        now = self._clock.monotonic()
        self._store.record([(actor.type, actor.actor_id, max(0.0, now - moment)) for actor, moment in heard.items()])
        if self._role.is_write_manager:
            return
        self._merge(self._to_pass, heard)
        with self._lock:
            passing, self._to_pass = self._to_pass, {}
        try:
            if passing:
                ages = [(actor.type, actor.actor_id, max(0.0, now - moment)) for actor, moment in passing.items()]
                told = self._peers.heartbeats(self._role.require_leader(), ages, sign=self._lives.sign())
                self._store.record(told.nodes)
                if told.sign is not None:
                    self._lives.note(told.sign)
        except MyQueueError:
            self._merge(self._to_pass, passing)
            raise

    def _merge(self, into: dict[Actor, float], more: Mapping[Actor, float]) -> None:
        with self._lock:
            if len(into) + len(more) > ACTORS_MAX:
                raise OverloadedError("too many actors are waiting to have their heartbeats written")
            for actor, moment in more.items():
                into[actor] = max(moment, into.get(actor, moment))


class Liveness:
    """Reads the heartbeats: who is alive, suspect or dead."""

    def __init__(self, store: HeartbeatStore, *, replica: Replica, role: Role, thresholds: Mapping[str, Thresholds], clock: Clock) -> None:
        self._store, self._replica, self._role, self._thresholds, self._clock = store, replica, role, thresholds, clock
        self._nodes: tuple[float, list[HeartbeatRow]] = (float("-inf"), [])  # read when
        self._states: dict[str, dict[Actor, State]] = {}
        self._turns = 0

    def rows(self, types: Iterable[str]) -> list[tuple[HeartbeatRow, State]]:
        """Every actor of these types with its state; brokers and managers that were never heard of are among them."""
        types = tuple(types)
        known = {(row.type, row.actor_id): row for row in (self._rows_of_nodes() if set(types) <= set(NODES) else self._store.rows(types))}
        catalogue = self._replica.catalogue()
        expected = {"broker": set(catalogue.brokers), "manager": {member.node_id for member in catalogue.members}}
        leading = self._role.leading_seconds()
        rows = []
        for type in types:
            ids = expected.get(type, {actor_id for kind, actor_id in known if kind == type})
            for actor_id in sorted(ids):
                row = known.get((type, actor_id), HeartbeatRow(type, actor_id, float("inf"), 0))
                row = row._replace(age_seconds=heard_age(row.age_seconds, leading_seconds=leading))
                rows.append((row, self._thresholds[type].state(row.age_seconds)))
        return rows

    def live_brokers(self) -> tuple[int, ...]:
        """Where new partitions may go: brokers that are alive, all of them for as long as a new leadership believes in everyone; where there is
        none, those that are not dead.
        """
        states = self.broker_states()
        return (tuple(broker_id for broker_id, state in states.items() if state is State.ALIVE)
                or tuple(broker_id for broker_id, state in states.items() if state is not State.DEAD))

    def heard_brokers(self) -> frozenset[int]:
        """Those whose heartbeats are young by themselves, whenever this leadership began."""
        return frozenset(row.actor_id for row in self._rows_of_nodes()
                         if row.type == "broker" and self._thresholds["broker"].state(max(0.0, row.age_seconds)) is State.ALIVE)

    def broker_states(self) -> dict[int, State]:
        """The brokers' states by their heartbeats."""
        return {row.actor_id: state for row, state in self.rows(("broker",))}

    def outlook(self, catalogue: Catalogue) -> Outlook:
        """The brokers as their heartbeats show them: who is not alive is not there."""
        states = self.broker_states()
        dead = frozenset(broker_id for broker_id in catalogue.brokers if states.get(broker_id) is not State.ALIVE)
        return Outlook(brokers_of(catalogue), dead)

    def check(self) -> None:
        """Log who changed, once per change. Called once a second by the write manager's driver process."""
        self._check(NODES)
        if self._turns % CLIENT_CHECK_TURNS == 0:
            self._check(CLIENTS)
        if self._turns % FORGET_TURNS == FORGET_TURNS - 1:
            self._store.forget_clients(CLIENTS_KEPT_SECONDS)
        self._turns += 1

    def _rows_of_nodes(self) -> list[HeartbeatRow]:
        read_at, rows = self._nodes
        now = self._clock.monotonic()
        if now - read_at < NODES_KEPT_SECONDS:
            return [row._replace(age_seconds=row.age_seconds + now - read_at) for row in rows]
        rows = list(self._store.rows(NODES))
        self._nodes = (now, rows)
        return rows

    def _check(self, types: tuple[str, ...]) -> None:
        rows = self.rows(types)
        ages = {Actor(row.type, row.actor_id): row.age_seconds for row, _ in rows}
        self._states[types[0]], turns = observe(self._states.get(types[0], {}), ages, self._thresholds)
        for turn in turns:
            level = logging.INFO if turn.after is State.ALIVE else logging.WARNING
            _log.log(level, "%s is %s", turn.actor, turn.after.value, extra={"type": turn.actor.type, "actor_id": turn.actor.actor_id,
                     "state": turn.after.value, "age_seconds": round(turn.age_seconds, 1)})
        for type in types:
            for state in State:
                count = sum(1 for actor, value in self._states[types[0]].items() if actor.type == type and value is state)
                metrics.ACTORS.labels(type, state.value).set(count)
