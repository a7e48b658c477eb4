"""What brokers are asked, as it goes over the wire."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

from manager.brokers import Brokers
from myqueue.client.transport import Response
from myqueue.protocol import routes
from myqueue.protocol.types import NodeAddress, PartitionId

ADDRESS = NodeAddress("127.0.0.1", 9)


class Wire:
    """Answers everything alike, and keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []

    def request(self, _method: str, url: str, *, body: bytes | None = None, **_: Any) -> Response:
        self.asked.append((url.removeprefix(ADDRESS.url), json.loads(body or b"null")))
        return Response(200, {}, b'{"partitions": [], "results": []}')

    def close(self) -> None:
        """Nothing is open."""


def test_partitions_are_asked_after_by_identity_and_dropped_with_the_epoch_of_that_word() -> None:
    wire = Wire()
    with closing(Brokers(wire, timeout_seconds=1.0)) as brokers:  # type: ignore[arg-type]
        brokers.status(1, ADDRESS, [PartitionId(7, 0), PartitionId(7, 2)])
        brokers.status(1, ADDRESS)
        brokers.drop(1, ADDRESS, [5], {PartitionId(7, 0): 4})
    assert wire.asked == [(routes.I_STATUS, {"partitions": [[7, 0], [7, 2]]}), (routes.I_STATUS, {}),
                          (routes.I_DROP, {"topic_ids": [5], "partitions": [[7, 0, 4]]})]
