"""The other brokers: where they listen, as the managers say, and calls to them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from myqueue.client.transport import Response, Transport, raise_for
from myqueue.clock import Clock
from myqueue.errors import UnreachableError
from myqueue.protocol.types import NodeAddress

READ_TIMEOUT_SECONDS = 3.0
ASK_AGAIN_SECONDS = 1.0


class Peers:
    """Brokers by id. Addresses are asked for where one is unknown or did not answer, at most once a second. Safe to share.

    Args:
        cluster: a manager's snapshot of the cluster, as JSON; raises UnavailableError where none answers.
    """

    def __init__(self, transport: Transport, cluster: Callable[[], Mapping[str, Any]], clock: Clock) -> None:
        self._transport, self._cluster, self._clock = transport, cluster, clock
        self._lock = threading.Lock()
        self._known: dict[int, NodeAddress] = {}
        self._asked_at = float("-inf")

    def post(self, broker_id: int, path: str, body: bytes, content_type: str, *, read_timeout_seconds: float = READ_TIMEOUT_SECONDS) -> Response:
        """One call that may be made twice.

        Raises:
            UnreachableError, OutcomeUnknownError: no answer; whatever was sent may be sent again.
            MyQueueError: what was answered.
        """
        address = self._address(broker_id)
        try:
            answer = self._transport.request("POST", f"{address.url}{path}", headers={"Content-Type": content_type}, body=body,
                                             read_timeout_seconds=read_timeout_seconds)
        except UnreachableError:
            with self._lock:
                self._known.pop(broker_id, None)
            raise
        raise_for(answer)
        return answer

    def _address(self, broker_id: int) -> NodeAddress:
        with self._lock:
            known = self._known.get(broker_id)
            now = self._clock.monotonic()
            may_ask = known is None and now - self._asked_at >= ASK_AGAIN_SECONDS
            if may_ask:
                self._asked_at = now
        if may_ask:
            brokers = {int(one["broker_id"]): NodeAddress(str(one["host"]), int(one["port"])) for one in self._cluster()["brokers"]}
            with self._lock:
                self._known = {**brokers}
                known = brokers.get(broker_id)
        if known is None:
            raise UnreachableError(f"nobody says where broker {broker_id} listens")
        return known
