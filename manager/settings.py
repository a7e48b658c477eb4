"""Settings of a manager, declared once. manager/README.md lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from manager.cluster.liveness import Thresholds
from myqueue.errors import ConfigurationError
from myqueue.service import limits
from myqueue.settings import setting


@dataclass(frozen=True)
class ManagerSettings:
    """How one manager runs."""

    ENV_PREFIX: ClassVar[str] = "MYQUEUE_MANAGER"

    database_url: str = setting(help="this manager's own database, postgresql://user:password@host:port/name; give it by the variable", secret=True)
    node_id: int = setting(help="this manager's number, from 1", minimum=1)
    managers: tuple[str, ...] = setting(help="all managers, this one included: 1=http://host:port,2=http://host:port,…")
    host: str = setting("127.0.0.1", help="address to listen on")
    port: int = setting(9094, help="port to listen on", minimum=1, maximum=65_535)
    reader_user: str = setting("myqueue_reader", help="read-only login of the databases, told to Spark jobs; its password never is")
    workers: int = setting(1, help="worker processes", minimum=1, maximum=64)
    threads: int = setting(48, help="requests answered at the same time by a worker", minimum=16, maximum=1_000)
    connections_max: int = limits.connections_max()
    request_seconds: float = limits.request_seconds()
    stalled_seconds: float = limits.stalled_seconds()
    pool_size: int = setting(8, help="database connections of a worker", minimum=4, maximum=100)
    propose_timeout_seconds: float = setting(2.5, help="wait for a command to be committed by a majority", minimum=0.1, maximum=60)
    peer_timeout_seconds: float = setting(2.0, help="wait for another manager's answer to an append", minimum=0.1, maximum=60)
    broker_timeout_seconds: float = setting(5.0, help="wait for a broker's answer", minimum=0.1, maximum=60)
    appoint_timeout_seconds: float = setting(3.0, help="wait for brokers to take the partitions of a new topic", minimum=0.1, maximum=60)
    read_wait_seconds: float = setting(2.0, help="wait for this manager to apply an index that a reader wants", minimum=0, maximum=30)
    raft_heartbeat_seconds: float = setting(0.3, help="a leader tells the other managers that it lives", minimum=0.02, maximum=10)
    election_timeout_seconds: float = setting(1.0, help="silence of a leader, or of a majority, after which there is an election; each manager "
                                              "waits up to twice as long", minimum=0.1, maximum=60)
    wal_entries_max: int = setting(20_000, help="applied entries in the WAL: a snapshot is taken at every half as many, and the WAL then begins "
                                   "at the one before", minimum=2, maximum=10_000_000)
    heartbeat_interval_seconds: float = setting(1.0, help="heartbeats are written and passed on", minimum=0.1, maximum=60)
    node_suspect_after_seconds: float = setting(5.0, help="silence after which a broker or manager is suspect", minimum=0.1)
    node_dead_after_seconds: float = setting(15.0, help="silence after which a broker or manager is dead", minimum=0.1)
    drain_wait_seconds: float = setting(20.0, help="wait for a broker that is removed to hold nothing any more; the drain goes on behind it",
                                        minimum=0, maximum=60)
    recreate_after_seconds: float = setting(600.0, help="a broker that is dead for so long is not waited for: its replicas are made again elsewhere",
                                            minimum=1)
    inventory_seconds: float = setting(60.0, help="time between looks at what brokers hold: what is left over they drop, what is damaged they get "
                                       "anew", minimum=0.2, maximum=3_600)
    growth_check_seconds: float = setting(30.0, help="time between looks at topics that grow by themselves (grow_at_messages); each gets one "
                                          "partition at a look", minimum=0.2, maximum=3_600)
    client_suspect_after_seconds: float = setting(30.0, help="silence after which a producer or consumer is suspect", minimum=0.1)
    client_dead_after_seconds: float = setting(60.0, help="silence after which a producer or consumer is dead", minimum=0.1)
    ready_lag_seconds: float = setting(5.0, help="a manager that hears of no leader after its start is ready after so long", minimum=0.1)
    token: str | None = setting(None, help="what clients must show as Authorization: Bearer", secret=True, env="MYQUEUE_TOKEN")
    secret_file: str | None = setting(None, help="file with the cluster's secret, with which calls between nodes are signed")
    cluster_data: str | None = setting(None, help="data folder of the local cluster whose supervisor runs this manager: POST /brokers without an "
                                       "address adds a broker there")
    log_level: str = setting("info", help="least level of what is logged", choices=("debug", "info", "warning", "error"))

    @property
    def node(self) -> str:
        """The name of this node."""
        return f"manager-{self.node_id}"

    @property
    def urls(self) -> dict[int, str]:
        """Every manager's URL by node id."""
        return dict(_parse(item) for item in self.managers)

    @property
    def client_limits(self) -> limits.Limits:
        """What clients may hold of a worker."""
        return limits.Limits(self.connections_max, self.request_seconds, self.stalled_seconds)

    @property
    def snapshot_entries(self) -> int:
        """From one snapshot to the next."""
        return self.wal_entries_max // 2

    @property
    def thresholds(self) -> dict[str, Thresholds]:
        """When an actor of a type is suspect or dead."""
        nodes = Thresholds(self.node_suspect_after_seconds, self.node_dead_after_seconds)
        clients = Thresholds(self.client_suspect_after_seconds, self.client_dead_after_seconds)
        return {"broker": nodes, "manager": nodes, "producer": clients, "consumer": clients}

    def validate(self) -> None:
        """Raises ConfigurationError for combinations that cannot work."""
        if len(self.urls) != len(self.managers):
            raise ConfigurationError("--managers names a node twice")
        if self.node_id not in self.urls:
            raise ConfigurationError(f"--node-id {self.node_id} is not one of --managers ({', '.join(map(str, sorted(self.urls)))})")
        if 3 * self.raft_heartbeat_seconds > self.election_timeout_seconds:
            raise ConfigurationError(f"an election timeout of {self.election_timeout_seconds} s needs a heartbeat of at most a third of it, not "
                                     f"{self.raft_heartbeat_seconds} s")
        for kind, thresholds in self.thresholds.items():
            if thresholds.suspect_after_seconds >= thresholds.dead_after_seconds:
                raise ConfigurationError(f"a {kind} must be suspect before it is dead: {thresholds.suspect_after_seconds} s is not below "
                                         f"{thresholds.dead_after_seconds} s")


def _parse(item: str) -> tuple[int, str]:
    number, separator, url = item.partition("=")
    if not separator or not number.strip().isdecimal() or not url.strip().startswith(("http://", "https://")):
        raise ConfigurationError(f"--managers: {item!r} should look like 1=http://host:port")
    return int(number), url.strip().rstrip("/")
