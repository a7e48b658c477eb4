"""Which node next: a pure choice over what was learnt from snapshots, answers and failures.

A partition's records go straight to the broker that leads it, or through the balancer (same path) where the leader is
not known or could not be reached lately. Not safe to share between threads: the Connection holds its lock around it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from ..errors import ConfigurationError
from ..protocol.types import ClusterSnapshot, PartitionInfo, TopicPartition

AVOID_SECONDS = 5.0
DEFAULT_PORT = 9092


def parse_bootstrap(broker: str | Sequence[str]) -> tuple[str, ...]:
    """Base URLs of the addresses in ``"host:port[,host:port…]"`` or a sequence of them. Raises ConfigurationError."""
    texts = broker.split(",") if isinstance(broker, str) else list(broker)
    urls = tuple(_base_url(text.strip()) for text in texts if text.strip())
    if not urls:
        raise ConfigurationError("no address is given: it should read HOST:PORT")
    return urls


def _base_url(text: str) -> str:
    parts = urlsplit(text if "://" in text else f"http://{text}")
    try:
        port = parts.port or DEFAULT_PORT
    except ValueError:
        port = 0
    if parts.scheme not in ("http", "https") or not parts.hostname or not port or parts.path.strip("/") or parts.query or parts.username:
        raise ConfigurationError(f"{text!r} is not an address: it should read HOST:PORT")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}"


class Endpoints:
    """The client's picture of the cluster, and who is worth asking."""

    def __init__(self, bootstrap: Iterable[str], *, avoid_seconds: float = AVOID_SECONDS) -> None:
        self.snapshot = ClusterSnapshot("", -1)
        self._bootstrap = tuple(bootstrap)
        self._turn = 0
        self._avoid_seconds = avoid_seconds
        self._avoid_until: dict[str, float] = {}
        self.failing_since: float | None = None  # begin of the first request of late that got no answer

    def __repr__(self) -> str:
        return f"Endpoints({', '.join(self._bootstrap)}; version {self.snapshot.version}, {len(self.snapshot.partitions)} partitions)"

    def learn(self, snapshot: ClusterSnapshot) -> bool:
        """Take a snapshot over, unless it is older than the one at hand (another manager may be behind)."""
        if snapshot.cluster_id == self.snapshot.cluster_id and snapshot.version < self.snapshot.version:
            return False
        self.snapshot = snapshot
        return True

    def bootstrap_url(self, now: float) -> str:
        """The next address that was given, in turn; one that failed lately only where all did."""
        turn = self._bootstrap[self._turn % len(self._bootstrap) :] + self._bootstrap[: self._turn % len(self._bootstrap)]
        self._turn += 1
        return next((url for url in turn if self._avoid_until.get(url, now) <= now), turn[0])

    def partition_url(self, partition: TopicPartition, now: float) -> str:
        """Where this partition's records are sent to and read from."""
        info = self.info(partition)
        address = self.snapshot.brokers.get(info.leader) if info and info.leader is not None else None
        if address is None or self._avoid_until.get(address.url, now) > now:
            return self.bootstrap_url(now)
        return address.url

    def info(self, partition: TopicPartition) -> PartitionInfo | None:
        return self.snapshot.partitions.get(partition)

    def answered(self, url: str) -> None:
        """A node gave an answer, whatever its status."""
        self.failing_since = None
        self._avoid_until.pop(url, None)

    def failed(self, url: str, *, started: float, now: float) -> None:
        """A node gave no answer to a request begun at ``started``: avoid it for a while."""
        if self.failing_since is None:
            self.failing_since = started
        self._avoid_until[url] = now + self._avoid_seconds

    def silent_seconds(self, now: float) -> float:
        """For how long no node has answered although some were asked; 0 where the last one asked did."""
        return 0.0 if self.failing_since is None else now - self.failing_since
