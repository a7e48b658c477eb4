"""From a cluster's shape to the command line of every process. Pure.

How a kind of node is started is a row of a table, so that tests supply rows of their own.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from ..errors import ConfigurationError
from .spec import EXTERNAL, HOST, SHARED, ClusterSpec

RESERVED_CONNECTIONS = 50  # the reader's 32, migrations, people, PostgreSQL's own reserve
BROKERS_TO_COME = 2  # that can be added to a server that runs: more wait for its restart
MARK = "MYQUEUE_SUPERVISED"  # in every node's environment: what a killed supervisor left behind is found by it


@dataclass(frozen=True, slots=True)
class Kind:
    """How nodes of a kind are started: templates over the node's values.

    Attributes:
        stage: nodes start stage by stage; each stage is ready before the next begins.
        connections: the most connections one node opens to its database.
        once: a job that ends; ready when it ended well.
        stop_seconds: how long a clean end may take; then it is killed.
        discard_signal: asks for its end where its data are deleted next.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    stage: int = 2
    connections: int = 0
    once: bool = False
    stop_seconds: float = 15.0  # gunicorn answers what it has within 8
    discard_signal: int = signal.SIGTERM


KINDS: Mapping[str, Kind] = {
    "postgres": Kind(
        ("{python}", "-m", "db", "server", "--data", "{postgres_data}", "--port", "{port}", "--ready-file", "{ready_file}",
         "--log-file", "{log_file}", "--set", "max_connections={max_connections}", "--set", "shared_buffers={shared_buffers}"),
        stage=0, stop_seconds=40.0, discard_signal=signal.SIGQUIT),  # its last checkpoint syncs every file of every database made meanwhile
    "databases": Kind(
        ("{python}", "-m", "db", "create", "--prefix", "{prefix}", "--nodes", "{nodes}"),
        {"MYQUEUE_DB_ADMIN_URL": "{admin_url}", "MYQUEUE_DB_ADMIN_PASSWORD_FILE": "{admin_password_file}",
         "MYQUEUE_DB_OWNER_PASSWORD": "{owner_password}", "MYQUEUE_DB_READER_PASSWORD": "{reader_password}"},
        stage=1, once=True),
    "manager": Kind(
        ("{python}", "-m", "manager", "--host", "{host}", "--port", "{port}", "--node-id", "{number}", "--managers", "{numbered_managers}"),
        {"MYQUEUE_MANAGER_DATABASE_URL": "{database_url}", "MYQUEUE_MANAGER_READER_USER": "{reader}", "MYQUEUE_MANAGER_SECRET_FILE": "{secret_file}",
         "MYQUEUE_MANAGER_CLUSTER_DATA": "{data}"},
        connections=16),
    "broker": Kind(
        ("{python}", "-m", "broker", "--host", "{host}", "--port", "{port}", "--managers", "{managers}"),
        {"MYQUEUE_BROKER_DATABASE_URL": "{database_url}", "MYQUEUE_BROKER_READER_USER": "{reader}", "MYQUEUE_BROKER_SECRET_FILE": "{secret_file}"},
        connections=24),
    "balancer": Kind(
        ("{python}", "-m", "load_balancer", "--host", "{host}", "--port", "{port}", "--managers", "{managers}"),
        {"MYQUEUE_BALANCER_SECRET_FILE": "{secret_file}"}),
}


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """All the supervisor needs to know of one process. It holds passwords: it is never shown as a whole."""

    name: str
    kind: str
    stage: int
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    log_file: str
    url: str | None = None
    ready_url: str | None = None
    ready_file: str | None = None
    once: bool = False
    stop_seconds: float = 15.0
    discard_signal: int = signal.SIGTERM
    database: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> NodeSpec:
        return cls(**{**body, "command": tuple(body["command"])})


@dataclass(frozen=True, slots=True)
class Places:
    """What a plan takes from the data folder: folders, secrets, ports."""

    data: str
    cluster_id: str
    prefix: str
    ports: Mapping[str, int]  # of every node but the balancer
    balancer_ports: tuple[int, ...]
    run: str
    logs: str
    postgres_home: str
    secret_file: str
    owner_password: str = field(repr=False)
    reader_password: str = field(repr=False)
    server_url: str | None = field(default=None, repr=False)  # the server of one's own


def make_plan(spec: ClusterSpec, places: Places, kinds: Mapping[str, Kind] = KINDS) -> list[NodeSpec]:
    """Every process of a cluster, in the order of their stages."""
    return [*_postgres_nodes(spec, places, kinds), *_database_jobs(spec, places, kinds), *_services(spec, places, kinds)]


def max_connections(spec: ClusterSpec, server: str, kinds: Mapping[str, Kind] = KINDS) -> int:
    """What a PostgreSQL node must allow: all pools of its nodes together, and a reserve."""
    nodes = [node for node in spec.database_nodes() if spec.postgres_of(node) == server]
    to_come = BROKERS_TO_COME * kinds["broker"].connections if spec.postgres == SHARED else 0
    return RESERVED_CONNECTIONS + to_come + sum(kinds[node.partition("-")[0]].connections for node in nodes)


def database_address(spec: ClusterSpec, places: Places, node: str) -> dict[str, Any]:
    """Where a node's database is, as it may be shown and as Spark reads it: without a password."""
    server = spec.postgres_of(node)
    name = f"{places.prefix}_{node.replace('-', '_')}"
    if server is not None:
        return {"host": HOST, "port": places.ports[server], "name": name, "user": f"{places.prefix}_reader"}
    parts = _server_parts(places)
    return {"host": parts.hostname or HOST, "port": parts.port or 5432, "name": name, "user": f"{places.prefix}_reader"}


def pgpass(spec: ClusterSpec, places: Places) -> str:
    """The reader's password for every node's database, in libpq's file format."""
    lines = []
    for node in spec.database_nodes():
        address = database_address(spec, places, node)
        columns = [str(address[key]) for key in ("host", "port", "name", "user")] + [places.reader_password]
        lines.append(":".join(column.replace("\\", "\\\\").replace(":", "\\:") for column in columns))
    return "\n".join(lines) + "\n"


def _postgres_nodes(spec: ClusterSpec, places: Places, kinds: Mapping[str, Kind]) -> list[NodeSpec]:
    nodes = []
    for name in spec.postgres_names():
        ready_file = f"{places.run}/{name}.ready"
        values = {"port": places.ports[name], "postgres_data": f"{places.postgres_home}/{name}", "ready_file": ready_file,
                  "log_file": f"{places.logs}/{name}.server.log", "max_connections": max_connections(spec, name, kinds),
                  "shared_buffers": "128MB" if name == "postgres" else "32MB"}
        nodes.append(_node(name, "postgres", places, kinds, values, ready_file=ready_file, url=f"postgresql://{HOST}:{places.ports[name]}"))
    return nodes


def _database_jobs(spec: ClusterSpec, places: Places, kinds: Mapping[str, Kind]) -> list[NodeSpec]:
    """One job per PostgreSQL server: the roles, and a database for each node it serves. Repeating it makes what is missing."""
    jobs = []
    for server in spec.postgres_names() or (None,):
        served = [node for node in spec.database_nodes() if spec.postgres_of(node) == server]
        if server is None:
            admin_url, password_file = _required_server_url(places), ""
        else:
            admin_url = f"postgresql://postgres@{HOST}:{places.ports[server]}/postgres"
            password_file = f"{places.postgres_home}/{server}.password"
        values = {"prefix": places.prefix, "nodes": ",".join(served), "admin_url": admin_url, "admin_password_file": password_file,
                  "owner_password": places.owner_password, "reader_password": places.reader_password}
        jobs.append(_node(job_of(server), "databases", places, kinds, values))
    return jobs


def job_of(server: str | None) -> str:
    """The name of the job that makes the databases of a server; None for a server of one's own."""
    return f"databases-{server or 'external'}"


def _services(spec: ClusterSpec, places: Places, kinds: Mapping[str, Kind]) -> list[NodeSpec]:
    manager_urls = [f"http://{HOST}:{places.ports[name]}" for name in spec.manager_names()]
    shared = {"managers": ",".join(manager_urls),
              "numbered_managers": ",".join(f"{number}={url}" for number, url in enumerate(manager_urls, 1)), "secret_file": places.secret_file,
              "reader": f"{places.prefix}_reader"}
    nodes = []
    for name in spec.database_nodes():
        kind, _, number = name.partition("-")
        values = {**shared, "number": number, "port": places.ports[name], "database_url": _owner_url(spec, places, name)}
        url = f"http://{HOST}:{places.ports[name]}"
        nodes.append(_node(name, kind, places, kinds, values, url=url, ready_url=f"{url}/readyz", database=database_address(spec, places, name)))
    url = f"http://{HOST}:{places.balancer_ports[0]}"
    values = {**shared, "number": "1", "port": ",".join(map(str, places.balancer_ports))}
    nodes.append(_node("balancer", "balancer", places, kinds, values, url=url, ready_url=f"{url}/readyz"))
    return nodes


def _node(name: str, kind_name: str, places: Places, kinds: Mapping[str, Kind], values: Mapping[str, object], **more: Any) -> NodeSpec:
    kind = kinds[kind_name]
    filled = {"python": sys.executable, "host": HOST, "name": name, "data": places.data, **values}
    environment = {key: template.format_map(filled) for key, template in kind.environment.items()}
    return NodeSpec(name=name, kind=kind_name, stage=kind.stage, once=kind.once, stop_seconds=kind.stop_seconds,
                    discard_signal=int(kind.discard_signal), log_file=f"{places.logs}/{name}.log",
                    command=tuple(part.format_map(filled) for part in kind.command),
                    environment={**environment, MARK: f"{places.cluster_id}:{name}"}, **more)


def _owner_url(spec: ClusterSpec, places: Places, node: str) -> str:
    address = database_address(spec, places, node)
    login = f"{places.prefix}_owner:{quote(places.owner_password, safe='')}"
    query = _server_parts(places).query if spec.postgres == EXTERNAL else ""  # sslmode and the like stay
    host = f"[{address['host']}]" if ":" in address["host"] else address["host"]
    return urlunsplit(("postgresql", f"{login}@{host}:{address['port']}", f"/{address['name']}", query, ""))


def _required_server_url(places: Places) -> str:
    if not places.server_url:
        raise ConfigurationError("this cluster's databases are on a server of your own: DATABASE_URL must name it")
    return places.server_url


def _server_parts(places: Places) -> Any:
    return server_parts(_required_server_url(places))


def server_parts(server_url: str) -> Any:
    """The parts of a DATABASE_URL. Raises ConfigurationError for one that is none."""
    try:
        parts = urlsplit(server_url)
        parts.port  # noqa: B018 (reading it checks it)
    except ValueError:
        raise ConfigurationError("DATABASE_URL cannot be read: it should look like postgresql://user:password@host:port/database") from None
    if not parts.scheme.startswith("postgres"):
        raise ConfigurationError("DATABASE_URL is not a PostgreSQL URL: it should look like postgresql://user:password@host:port/database")
    return parts
