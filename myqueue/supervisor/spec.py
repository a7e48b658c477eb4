"""What a cluster on one machine consists of. Pure: options in, checked values and names out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import ConfigurationError

HOST = "127.0.0.1"
DEFAULT_PORT = 9092
SHARED, PER_NODE, EXTERNAL = "shared", "per-node", "external"
POSTGRES_MODES = (SHARED, PER_NODE, EXTERNAL)
BROKERS_MAX = 32
MANAGERS_MAX = 7


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """The size and shape of a cluster.

    Attributes:
        ports: where the balancer listens on loopback; 0 stands for a free port, picked once and kept.
        postgres: one embedded server with a database per node, an embedded server per node, or a server of one's own.

    Raises:
        ConfigurationError: it cannot be built like this.
    """

    brokers: int = 3
    managers: int = 3
    ports: tuple[int, ...] = (DEFAULT_PORT,)
    postgres: str = SHARED

    def __post_init__(self) -> None:
        _within("--brokers", self.brokers, 1, BROKERS_MAX)
        _within("--managers", self.managers, 1, MANAGERS_MAX)
        if self.managers % 2 == 0:
            raise ConfigurationError(f"--managers is {self.managers}: an odd number is wanted, one more would not survive one failure more")
        if not self.ports:
            raise ConfigurationError("--port is needed at least once")
        for port in self.ports:
            _within("--port", port, 0, 65_535)
        given = [port for port in self.ports if port]
        if len(given) != len(set(given)):
            raise ConfigurationError("--port names the same port twice")
        if self.postgres not in POSTGRES_MODES:
            raise ConfigurationError(f"--postgres is {self.postgres!r}: it must be one of {', '.join(POSTGRES_MODES)}")

    def manager_names(self) -> tuple[str, ...]:
        return tuple(f"manager-{number}" for number in range(1, self.managers + 1))

    def broker_names(self) -> tuple[str, ...]:
        return tuple(f"broker-{number}" for number in range(1, self.brokers + 1))

    def database_nodes(self) -> tuple[str, ...]:
        """The nodes that have a database."""
        return self.manager_names() + self.broker_names()

    def postgres_of(self, node: str) -> str | None:
        """The PostgreSQL node that holds a node's database; None for a server of one's own."""
        return {SHARED: "postgres", PER_NODE: f"postgres-{node}", EXTERNAL: None}[self.postgres]

    def postgres_names(self) -> tuple[str, ...]:
        names = (self.postgres_of(node) for node in self.database_nodes())
        return tuple(dict.fromkeys(name for name in names if name))

    def names(self) -> tuple[str, ...]:
        """Every node, in the order of their start."""
        return (*self.postgres_names(), *self.database_nodes(), "balancer")

    def grown_from(self, before: ClusterSpec) -> None:
        """Check that data of a cluster of another shape can be used.

        Raises:
            ConfigurationError: it cannot.
        """
        if self.managers != before.managers:
            raise ConfigurationError(f"this cluster was made with {before.managers} managers: their number cannot be changed here")
        if self.brokers < before.brokers:
            raise ConfigurationError(f"this cluster has {before.brokers} brokers: it can grow, but not shrink, here")
        if self.postgres != before.postgres:
            raise ConfigurationError(f"this cluster was made with --postgres {before.postgres}: that cannot be changed")

    def to_json(self) -> dict[str, Any]:
        return {"brokers": self.brokers, "managers": self.managers, "ports": list(self.ports), "postgres": self.postgres}

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> ClusterSpec:
        return cls(body["brokers"], body["managers"], tuple(body["ports"]), body["postgres"])


def _within(flag: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ConfigurationError(f"{flag} is {value}: it must be from {least} to {most}")
