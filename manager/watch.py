"""Which brokers are there, for whoever elects leaders: heartbeats, and a look at the door.

Heartbeats alone say late that a process has died: it may be silent for seconds and live. Where a connection is refused,
nobody listens any more, and that is known at once. So a broker is dead for elections when its connection was refused
twice in a row, when it is suspect and does not say that it is ready, or when its heartbeats say so. A broker that is
wrongly taken for dead costs an election and nothing else.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait

from manager.brokers import Brokers
from manager.catalogue import Catalogue, brokers_of
from manager.cluster.election import Outlook
from manager.cluster.liveness import State
from myqueue.clock import Clock
from myqueue.protocol.types import NodeAddress

CONNECT_SECONDS = 0.5
READY_SECONDS = 1.0
REFUSALS = 2  # in a row: the first may have met a restart
PARALLEL_LOOKS_MAX = 8


class BrokerWatch:
    """What the write manager's coordinator believes of the brokers. Used by one thread, but for ``absent`` and ``late``.

    Args:
        states: of the brokers by their heartbeats.
        lost_after_seconds: a broker that is dead for so long is not waited for any more.
    """

    def __init__(self, *, states: Callable[[], Mapping[int, State]], brokers: Brokers, clock: Clock, lost_after_seconds: float) -> None:
        self._states, self._brokers, self._clock, self._lost_after_seconds = states, brokers, clock, lost_after_seconds
        self._pool = ThreadPoolExecutor(PARALLEL_LOOKS_MAX, thread_name_prefix="watch")
        self._asking = ThreadPoolExecutor(PARALLEL_LOOKS_MAX, thread_name_prefix="late")  # so that many commands hold no look of the coordinator up
        self._refusals: dict[int, int] = {}
        self._dead_since: dict[int, float] = {}

    def close(self) -> None:
        for pool in (self._pool, self._asking):
            pool.shutdown(wait=False, cancel_futures=True)

    def begin(self) -> None:
        """This manager begins to lead: what it believed before is void."""
        self._refusals, self._dead_since = {}, {}

    @property
    def is_in_doubt(self) -> bool:
        """Whether a connection was refused and nobody is held for dead for it yet: look again soon."""
        return any(0 < refusals < REFUSALS for refusals in self._refusals.values())

    def outlook(self, catalogue: Catalogue) -> Outlook:
        """Look at every broker now; bounded by the waits of one look."""
        states = self._states()

        def look(broker_id: int) -> bool:
            return self._is_dead(broker_id, catalogue.address(broker_id), states.get(broker_id, State.DEAD))

        ids = list(catalogue.brokers)
        dead = {broker_id for broker_id, is_dead in zip(ids, self._pool.map(look, ids), strict=True) if is_dead}
        now = self._clock.monotonic()
        self._dead_since = {broker_id: self._dead_since.get(broker_id, now) for broker_id in dead}
        lost = {broker_id for broker_id, since in self._dead_since.items() if now - since >= self._lost_after_seconds}
        return Outlook(brokers_of(catalogue), frozenset(dead), frozenset(lost))

    def absent(self, catalogue: Catalogue, asked: Iterable[int]) -> tuple[int, ...]:
        """Those of some brokers at whose address nobody listens just now; as long as one look. Safe to call from any thread, in any process."""
        known = [broker_id for broker_id in asked if broker_id in catalogue.brokers]
        refused = self._pool.map(is_refused, map(catalogue.address, known))
        return tuple(broker_id for broker_id, is_absent in zip(known, refused, strict=True) if is_absent)

    def late(self, catalogue: Catalogue) -> tuple[int, ...]:
        """The suspect brokers that say within a second that they are ready. Safe to call from any thread, in any process."""
        states = self._states()
        asked = {self._asking.submit(self._is_ready, catalogue.address(broker_id)): broker_id
                 for broker_id in catalogue.brokers if states.get(broker_id) is State.SUSPECT}
        done, silent = wait(asked, READY_SECONDS)
        for answer in silent:
            answer.cancel()
        return tuple(sorted(asked[answer] for answer in done if answer.result()))

    def _is_dead(self, broker_id: int, address: NodeAddress, state: State) -> bool:
        refusals = self._refusals[broker_id] = self._refusals.get(broker_id, 0) + 1 if is_refused(address) else 0
        if state is State.DEAD or refusals >= REFUSALS:
            return True
        return state is State.SUSPECT and not self._is_ready(address)

    def _is_ready(self, address: NodeAddress) -> bool:
        return self._brokers.is_ready(address, timeout_seconds=READY_SECONDS)


def is_refused(address: NodeAddress) -> bool:
    """Whether nobody listens there. A silent network says nothing: that is left to the heartbeats."""
    try:
        with socket.create_connection((address.host, address.port), timeout=CONNECT_SECONDS):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
