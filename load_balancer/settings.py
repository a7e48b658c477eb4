"""The balancer's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import urlsplit

from myqueue.errors import ConfigurationError
from myqueue.service import limits
from myqueue.settings import setting


@dataclass(frozen=True)
class BalancerSettings:
    """Where it listens, which managers it asks first, and how long it waits."""

    ENV_PREFIX: ClassVar[str] = "MYQUEUE_BALANCER"

    managers: tuple[str, ...] = setting(help="URLs of managers, with commas; one that answers is enough to find the others")
    host: str = setting("127.0.0.1", help="address to listen on; beyond loopback a token and the secret are needed")
    port: tuple[str, ...] = setting(("9092",), help="port to listen on, or several with commas")
    node: str = setting("balancer", help="name of this node in logs and headers")
    workers: int = setting(1, help="worker processes", minimum=1, maximum=64)
    threads: int = setting(400, help="requests in hand at once in a worker; a long poll or stream holds one", minimum=2, maximum=4_000)
    backend_share: float = setting(0.75, help="part of the threads that one backend may hold, so that a stuck one cannot stop the others",
                                   minimum=0.1, maximum=1.0)
    connections_max: int = limits.connections_max()
    request_seconds: float = limits.request_seconds()
    stalled_seconds: float = limits.stalled_seconds()
    refresh_interval_seconds: float = setting(1.0, help="time between looks at the managers and the routing table", minimum=0.1, maximum=60)
    poll_timeout_seconds: float = setting(2.0, help="bound on a manager's answer to such a look", minimum=0.1, maximum=30)
    connect_timeout_seconds: float = setting(2.0, help="bound on making a connection to a backend", minimum=0.1, maximum=30)
    manager_timeout_seconds: float = setting(15.0, help="bound on a wait for a manager's answer", minimum=0.5, maximum=120)
    broker_timeout_seconds: float = setting(40.0, help="bound on a wait for a broker's answer; above the longest poll, 30 s",
                                            minimum=0.5, maximum=120)
    token: str | None = setting(None, help="what clients must show and managers are shown; needed beyond loopback", secret=True,
                                env="MYQUEUE_TOKEN")
    secret_file: str | None = setting(None, help="file with the cluster's secret; needed beyond loopback")
    log_level: str = setting("info", help="least level that is logged", choices=("debug", "info", "warning", "error"))

    @property
    def ports(self) -> list[int]:
        return [int(port) for port in self.port]

    @property
    def client_limits(self) -> limits.Limits:
        """What clients may hold of a worker."""
        return limits.Limits(self.connections_max, self.request_seconds, self.stalled_seconds)

    def validate(self) -> None:
        for port in self.port:
            if not port.isdecimal() or not 1 <= int(port) <= 65_535:
                raise ConfigurationError(f"--port {port}: a port is a number from 1 to 65535")
        if not self.port or len(set(self.ports)) < len(self.port):
            raise ConfigurationError(f"--port {','.join(self.port)}: one port at least, and none twice")
        if not self.managers:
            raise ConfigurationError("--managers names no manager")
        for url in self.managers:
            if urlsplit(url).scheme != "http" or not urlsplit(url).hostname:
                raise ConfigurationError(f"--managers: {url} is not of the form http://host:port")
