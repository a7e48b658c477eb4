"""Settings of a broker, declared once. broker/README.md lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import urlsplit

from db.engine import parse_url
from myqueue.errors import ConfigurationError
from myqueue.service import limits
from myqueue.settings import setting


@dataclass(frozen=True, kw_only=True)
class BrokerSettings:
    """How one broker runs."""

    ENV_PREFIX: ClassVar[str] = "MYQUEUE_BROKER"

    host: str = setting("127.0.0.1", help="address to listen on, and under which the others reach it")
    port: int = setting(9095, help="port to listen on", minimum=1, maximum=65_535)
    advertised_address: str | None = setting(None, help="host:port under which the others reach it, where that is not where it listens")
    database_url: str = setting(help="this broker's own database, postgresql://user:password@host:port/name; give it by the variable", secret=True)
    managers: tuple[str, ...] = setting(help="URLs of the managers, with commas")
    reader_user: str = setting("myqueue_reader", help="read-only login of the database, told to Spark jobs; its password never is")
    workers: int = setting(1, help="worker processes", minimum=1, maximum=64)
    threads: int = setting(400, help="requests answered at the same time by a worker; a long poll or stream holds one", minimum=4, maximum=4_000)
    long_poll_share: float = setting(0.75, help="part of the threads that may wait in long polls and streams", minimum=0.1, maximum=0.95)
    connections_max: int = limits.connections_max()
    request_seconds: float = limits.request_seconds()
    stalled_seconds: float = limits.stalled_seconds()
    writers: int = setting(4, help="transactions that a worker has under way at the same time, one a partition", minimum=1, maximum=64)
    replicators: int = setting(4, help="requests to other brokers that a worker has under way at the same time, two a broker", minimum=1, maximum=64)
    replica_check_seconds: float = setting(1.0, help="time between looks at what other replicas lack", minimum=0.05, maximum=60)
    readers: int = setting(6, help="database connections for reads of a worker", minimum=1, maximum=100)
    queue_bytes_max: int = setting(64 << 20, help="bytes that may wait to be written in a worker; beyond it producers get 503", minimum=16 << 20)
    append_timeout_seconds: float = setting(10.0, help="wait for an append to be on disk", minimum=0.1, maximum=60)
    statement_timeout_seconds: float = setting(30.0, help="limit on one database statement", minimum=1, maximum=600)
    segment_bytes_max: int = setting(256 << 20, help="size at which a topic's segment is rolled", minimum=64 << 10)
    segment_age_seconds_max: float = setting(7 * 86_400.0, help="age at which it is rolled", minimum=1)
    segment_check_seconds: float = setting(2.0, help="time between looks at the segments", minimum=0.05, maximum=600)
    expiry_check_seconds: float = setting(30.0, help="time between looks at topics' configs: what they do not keep, and quotas",
                                          minimum=0.05, maximum=3_600)
    follower_kept_seconds: float = setting(60.0, help="for so long after its last answer, what a follower lacks is kept though it is trimmed",
                                           minimum=0, maximum=86_400)
    heartbeat_interval_seconds: float = setting(1.0, help="time between heartbeats to the managers", minimum=0.05, maximum=60)
    token: str | None = setting(None, help="what clients must show as Authorization: Bearer", secret=True, env="MYQUEUE_TOKEN")
    secret_file: str | None = setting(None, help="file with the cluster's secret, with which calls between nodes are signed")
    log_level: str = setting("info", help="least level of what is logged", choices=("debug", "info", "warning", "error"))

    def validate(self) -> None:
        """Raises ConfigurationError for what cannot work."""
        parse_url(self.database_url)
        if self.advertised_address is not None and not _is_address(self.advertised_address):
            raise ConfigurationError(f"--advertised-address is {self.advertised_address!r}: it should look like host:port")
        if not self.managers:
            raise ConfigurationError("--managers names no manager")
        for url in self.managers:
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
                raise ConfigurationError(f"--managers: {url} is not of the form http://host:port")

    @property
    def address(self) -> tuple[str, int]:
        """Host and port under which managers, clients and other brokers reach this one."""
        if self.advertised_address is None:
            return self.host, self.port
        host, _, port = self.advertised_address.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def client_limits(self) -> limits.Limits:
        """What clients may hold of a worker."""
        return limits.Limits(self.connections_max, self.request_seconds, self.stalled_seconds)

    @property
    def long_polls_max(self) -> int:
        """Reads that may wait at the same time in a worker."""
        return max(1, int(self.threads * self.long_poll_share))


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host.strip("[]")) and port.isdecimal() and 0 < int(port) < 65_536
