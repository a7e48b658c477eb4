"""A cluster of real processes whose connections all go through a switchboard, and whose clocks can be made to jump."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg2
import requests

from myqueue.protocol import routes
from myqueue.supervisor import KINDS, Cluster, ClusterSpec, Kind
from myqueue.supervisor.control import ask
from myqueue.supervisor.folder import Saved
from myqueue.supervisor.plan import database_address
from myqueue.supervisor.spec import BROKERS_MAX
from tests.campaign.exchange import Exchange
from tests.campaign.schedule import Nodes
from tests.campaign.switchboard import HOST
from tests.support.clusters import discard
from tests.support.postgres import open_folder
from tests.support.waiting import wait_until

CLOCK_BYTES = 8
CONNECT_SECONDS = 5
KNOWN_SECONDS = 10
# Segments are rolled, dropped and seeded within a campaign's minutes.
SMALL_SEGMENTS = {"MYQUEUE_BROKER_SEGMENT_BYTES_MAX": str(512 << 10), "MYQUEUE_BROKER_FOLLOWER_KEPT_SECONDS": "1"}


@dataclass(frozen=True, slots=True)
class Shape:
    """What kind of cluster the campaign runs on, and which rules are broken in it on purpose."""

    brokers: int = 3
    managers: int = 3
    postgres: str = "per-node"
    broken: tuple[str, ...] = ()  # fault points that stay armed in every broker and manager
    postgres_settings: tuple[str, ...] = ()  # NAME=VALUE, of every PostgreSQL

    @property
    def spec(self) -> ClusterSpec:
        return ClusterSpec(brokers=self.brokers, managers=self.managers, ports=(0,), postgres=self.postgres)


class Lab:
    """The running cluster, as the nemesis and the clients use it. ``nodes`` are the names that faults can strike."""

    def __init__(self, folder: Path, shape: Shape, switchboard: Exchange) -> None:
        self.switchboard, self._shape = switchboard, shape
        spec = shape.spec
        bare = Cluster(folder / "data", spec)
        saved = bare.folder.prepare(spec)
        self._keeper = bare.folder.keeper  # of the nodes' ports, until their supervisor keeps them: no relay may get one
        self.nodes = Nodes(spec.broker_names(), spec.manager_names(), spec.postgres_names())
        self._clock_folder = folder / "clocks"
        self._clock_folder.mkdir(exist_ok=True)
        self._broker_ids: dict[str, int] = {}
        self._ports = {name: switchboard.add(name, port) for name, port in _service_ports(saved).items()}
        self._database_ports = {name: switchboard.add(f"{name}.database", saved.ports[spec.postgres_of(name)])
                                for name in spec.database_nodes()}
        places = bare.folder.places(saved, None)
        login = f"{places.prefix}_owner:{quote(places.owner_password, safe='')}"
        environment = {}
        for name in spec.database_nodes():
            address = database_address(spec, places, name)
            url = f"postgresql://{login}@{HOST}:{self._database_ports[name]}/{address['name']}"
            environment[name] = self._environment(name, url, shape.broken)
        environment |= {name: {"MYQUEUE_TEST_MODE": "1", **SMALL_SEGMENTS} for name in ClusterSpec(brokers=BROKERS_MAX).broker_names()
                        if name not in environment}
        self.cluster = Cluster(folder / "data", spec, kinds=self._kinds(saved), environment=environment)
        self._saved = saved

    @property
    def bootstrap(self) -> str:
        """The balancer, through its relay."""
        return f"{HOST}:{self._ports['balancer']}"

    @property
    def url(self) -> str:
        return f"http://{self.bootstrap}"

    def direct_url(self, name: str) -> str:
        """A node without its relay, for those who only watch."""
        return f"http://{HOST}:{_service_ports(self._saved)[name]}"

    def up(self) -> None:
        self._keeper.let_go()  # the relays have theirs
        self.cluster.up()
        after = self.cluster.folder.load()
        assert after is not None and after.ports == self._saved.ports, "somebody took a port that was kept"

    def broker_id(self, name: str) -> int:
        """The id under which the managers know a broker, by where it listens for them. Raises AssertionError: they do not say in time."""
        if name not in self._broker_ids:  # a broker keeps its id: managers without a majority need not be asked for one that is known
            port = self._ports.get(name) or int(self.cluster.node(name)["url"].rpartition(":")[2])
            self._broker_ids[name] = wait_until(lambda: self._ids().get(port), timeout_seconds=KNOWN_SECONDS, what=f"the managers to know {name}")
        return self._broker_ids[name]

    def _ids(self) -> dict[int, int]:
        try:
            answer = requests.get(self.url + routes.CLUSTER, timeout=CONNECT_SECONDS)
        except requests.RequestException:
            return {}
        return {broker["port"]: broker["broker_id"] for broker in answer.json()["brokers"]} if answer.status_code == 200 else {}

    def add_broker(self) -> str:
        """One broker more, with a PostgreSQL as the others have; it has no relay, so that no link of it is struck."""
        return self.cluster.add_broker()

    # --- nodes, without waiting for them to be ready ---

    def tell(self, command: str, name: str) -> None:
        """start, stop, kill, pause or resume; returns when the supervisor has begun it."""
        if command in ("kill", "stop"):
            self._relays(name, self.switchboard.refuse)
        ask(self.cluster.folder, command, node=name)
        if command == "start":
            self._relays(name, self.switchboard.accept)

    def pids(self) -> dict[str, int | None]:
        """Each node's first process."""
        return {node["name"]: node["pid"] for node in ask(self.cluster.folder, "status")["nodes"]}

    def states(self) -> dict[str, str]:
        """Each node's state, as the supervisor knows it."""
        return {node["name"]: node["state"] for node in ask(self.cluster.folder, "status")["nodes"] if node["kind"] != "databases"}

    def unready(self) -> list[str]:
        return [node["name"] for node in self.cluster.status()["nodes"] if not node["ready"]]

    def _relays(self, name: str, act: Any) -> None:
        for relay in (name, *(f"{owner}.database" for owner in self._database_ports if self._spec.postgres_of(owner) == name)):
            act(relay)

    @property
    def _spec(self) -> ClusterSpec:
        return self._saved.spec

    # --- clocks ---

    def set_clock(self, name: str, offset_seconds: float) -> None:
        """From now on the wall clock of a node is off by so much."""
        with open(self._clock_file(name), "r+b") as file:
            file.write(round(offset_seconds * 1e6).to_bytes(CLOCK_BYTES, sys.byteorder, signed=True))

    def _clock_file(self, name: str) -> Path:
        return self._clock_folder / name

    # --- what is on the disks ---

    @contextmanager
    def database(self, name: str) -> Iterator[Any]:
        """A cursor on a node's database, as its read-only login."""
        address = self.cluster.node(name)["database"]
        with contextlib.closing(psycopg2.connect(host=address["host"], port=address["port"], dbname=address["name"], user=address["user"],
                                                 passfile=str(self.cluster.folder.pgpass_file), connect_timeout=CONNECT_SECONDS)) as connection, \
                connection.cursor() as cursor:
            yield cursor

    # --- how its processes are started ---

    def _environment(self, name: str, database_url: str, broken: tuple[str, ...]) -> dict[str, str]:
        self._clock_file(name).write_bytes(bytes(CLOCK_BYTES))
        kind = name.partition("-")[0].upper()
        variables = {"MYQUEUE_TEST_MODE": "1", "MYQUEUE_CLOCK_FILE": str(self._clock_file(name)), f"MYQUEUE_{kind}_DATABASE_URL": database_url}
        if kind == "BROKER":
            variables |= {"MYQUEUE_BROKER_ADVERTISED_ADDRESS": f"{HOST}:{self._ports[name]}", **SMALL_SEGMENTS}
        if broken:
            variables["MYQUEUE_FAULT"] = ",".join(broken)
        return variables

    def _kinds(self, saved: Saved) -> Mapping[str, Kind]:
        urls = [f"http://{HOST}:{self._ports[name]}" for name in saved.spec.manager_names()]
        through = {"{managers}": ",".join(urls), "{numbered_managers}": ",".join(f"{number}={url}" for number, url in enumerate(urls, 1))}
        kinds = {name: replace(kind, command=tuple(through.get(part, part) for part in kind.command)) for name, kind in KINDS.items()}
        settings = (part for setting in self._shape.postgres_settings for part in ("--set", setting))
        kinds["postgres"] = replace(kinds["postgres"], command=(*kinds["postgres"].command, *settings))
        return kinds


def _service_ports(saved: Saved) -> dict[str, int]:
    services = {name: saved.ports[name] for name in (*saved.spec.manager_names(), *saved.spec.broker_names())}
    return {**services, "balancer": saved.balancer_ports[0]}


@contextmanager
def open_lab(shape: Shape) -> Iterator[Lab]:
    """A cluster that is up; gone with its data afterwards, whatever happened."""
    with open_folder("myqueue campaign ") as folder, contextlib.closing(Exchange()) as switchboard:
        lab = Lab(folder, shape, switchboard)
        try:
            lab.up()
            yield lab
        finally:
            discard(lab.cluster)
