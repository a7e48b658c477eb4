"""A cluster on this machine, as the command line, the demo and the tests drive it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..client.transport import RequestsTransport, call, understood
from ..clock import SystemClock
from ..errors import ConfigurationError, MyQueueError, OutcomeUnknownError, UnavailableError
from ..protocol import routes
from .control import ask
from .folder import DataFolder, Saved
from .plan import KINDS, MARK, Kind, NodeSpec, Places, job_of, make_plan, server_parts
from .process import descendants, is_alive, kill_trees, marked, signal_all
from .spec import EXTERNAL, HOST, ClusterSpec

UP_SECONDS = 120.0
DOWN_SECONDS = 90.0  # services and PostgreSQL, each in their time
NODE_SECONDS = 60.0
LEFTOVER_SECONDS = 10.0
POLL_SECONDS = 0.05
PROBE_SECONDS = 2.0
PROJECT = Path(__file__).resolve().parents[2]
TAIL_LINES = 5

_clock = SystemClock()


class Cluster:
    """One cluster and its data folder. Making the object starts nothing.

    Args:
        data: the data folder.
        spec: the shape wanted; None takes what the folder holds, or the default.
        kinds: how each kind of node is started.
        server_url: a PostgreSQL server of one's own (``DATABASE_URL``) instead of the embedded one.
        token: what clients of this cluster must show (``MYQUEUE_TOKEN``), for the readiness probes.
        environment: more variables, by node name.
    """

    def __init__(self, data: Path | str, spec: ClusterSpec | None = None, *, kinds: Mapping[str, Kind] = KINDS, server_url: str | None = None,
                 token: str | None = None, environment: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self.folder = DataFolder(data)
        self._spec, self._kinds, self._server_url = spec, kinds, server_url
        self._token, self._environment = token, environment or {}
        self._process: subprocess.Popen[bytes] | None = None

    # --- what it is ---

    @property
    def data(self) -> Path:
        return self.folder.path

    @property
    def bootstrap(self) -> str:
        """The balancer as ``host:port``."""
        return f"{HOST}:{self._saved().balancer_ports[0]}"

    @property
    def balancer_url(self) -> str:
        return f"http://{self.bootstrap}"

    def status(self) -> dict[str, Any]:
        """The state of everything, as JSON values: "state" (up, starting, stopping, down), "data", "bootstrap" and "nodes".

        A node has "name", "kind", "state" (see ``Node``), "ready", "pid", "url", "database" (without a password), "log", "exits"; a
        manager also "raft", what its /raft_status says, a broker "broker_id" (in the order in which they registered, so of no relation to its
        name), each None where it does not answer. "partitions" says how many there are and which are
        without a leader, a majority, or all their replicas; None where no manager answers.
        """
        saved, partitions = self._saved(), None
        answer = self._ask_if_there()
        if answer is None:
            nodes = [{"name": name, "kind": name.partition("-")[0], "state": "down", "ready": False, "pid": None, "url": None, "database": None,
                      "exits": 0, "last_exit_code": None, "log": str(self.folder.logs / f"{name}.log")} for name in saved.spec.names()]
            phase = "down"
        else:
            nodes = [node for node in answer["nodes"] if node["kind"] != "databases"]
            phase = {"running": "up"}.get(answer["phase"], answer["phase"])
            with contextlib.closing(self._transport()) as transport:
                for node in nodes:
                    _ask_node(transport, node)
                partitions = next((found for node in nodes if node.get("raft") and (found := _partitions(transport, node["url"]))), None)
        return {"state": phase, "data": str(self.data), "bootstrap": f"{HOST}:{saved.balancer_ports[0]}",
                "balancer_ports": list(saved.balancer_ports), "postgres": saved.spec.postgres, "pgpass": str(self.folder.pgpass_file), "nodes": nodes,
                "partitions": partitions}

    def node(self, name: str) -> dict[str, Any]:
        """One node as ``status`` shows it; no other is asked.

        Raises:
            ConfigurationError: there is none of that name.
        """
        answer = self._ask_if_there()
        if answer is None:
            nodes = {node["name"]: node for node in self.status()["nodes"]}
        else:
            nodes = {node["name"]: node for node in answer["nodes"] if node["kind"] != "databases"}
            with contextlib.closing(self._transport()) as transport:
                if name in nodes:
                    _ask_node(transport, nodes[name])
        if name not in nodes:
            raise ConfigurationError(f"there is no node {name!r}: there are {', '.join(nodes)}")
        return nodes[name]

    def names(self) -> list[str]:
        return list(self._saved().spec.names())

    # --- all of it ---

    def up(self, *, attached: bool = True, timeout_seconds: float = UP_SECONDS) -> None:
        """Start everything; when this returns, every node is ready. A cluster that is up already is left as it is.

        Args:
            attached: the cluster ends with this process, however that ends; else it lives on in the background.

        Raises:
            ConfigurationError, UnavailableError: it could not be started; everything was taken down again.
        """
        if self.folder.is_supervised():
            if self._spec is not None and self._wanted() != self._saved().spec:
                raise ConfigurationError(f"the cluster in {self.data} is up in another shape: take it down first")
            with contextlib.suppress(_SupervisorEnded):  # it was just ending, or was killed: start anew
                self._await_ready(self.names(), timeout_seconds, was_up=True)
                return
        self._forget_process()  # of a supervisor that was killed
        self._end_leftovers()
        if self._server_url:
            server_parts(self._server_url)  # before there is a folder that belongs to it
        with self.folder.keeper:  # until the supervisor keeps them
            saved = self.folder.prepare(self._wanted())
            try:
                self._spawn(saved, attached=attached)
                self._await_ready(self.names(), timeout_seconds)
            except BaseException:
                self.down()
                raise

    def down(self, timeout_seconds: float = DOWN_SECONDS, *, lasting: bool = True) -> None:
        """End everything cleanly, what a killed supervisor left behind included; nothing happens if it is down.

        Args:
            lasting: False where the data are deleted next: PostgreSQL then writes no last checkpoint.

        Raises:
            UnavailableError: the supervisor did not end in time; everything was killed.
        """
        told = False

        def has_ended() -> bool:
            nonlocal told
            if not self.folder.is_supervised() and (self._process is None or self._process_ended()):
                return True
            if not told:
                with contextlib.suppress(UnavailableError):  # it is ending already, or has only just begun: told when it says how it is reached
                    ask(self.folder, "down", lasting=lasting)
                    told = True
            return False

        try:
            self._wait(has_ended, timeout_seconds, "the cluster did not end in time and was killed")
        except UnavailableError:
            self._kill_supervisor()
            raise
        finally:
            self._forget_process()
            self._end_leftovers()

    def reset(self) -> None:
        """Take it down and delete all its data, on a server of one's own too."""
        saved = self._saved()
        self.down(lasting=False)
        if saved.spec.postgres == EXTERNAL:
            self._drop_databases(saved)
        self.folder.remove()

    def watch(self) -> int:
        """Wait until the supervisor this object started ends; its exit code."""
        assert self._process is not None, "this object did not start the cluster"
        return self._process.wait()

    def __enter__(self) -> Cluster:
        self.up()
        return self

    def __exit__(self, *exc: object) -> None:
        self.down()

    # --- one broker more ---

    def add_broker(self, timeout_seconds: float = UP_SECONDS) -> str:
        """Start one broker more in a cluster that is up; its name, once it is ready.

        It is there after ``down`` and ``up`` too. One whose database an earlier call could not have made is tried again.

        Raises:
            ConfigurationError: the cluster is down, another broker is just being added, or there are as many as there may be. Nothing was done.
            OutcomeUnknownError: it was not ready in time, or something failed; it belongs to the cluster from now on all the same.
        """
        self._saved()
        if not self.folder.is_supervised():
            raise ConfigurationError(f"the cluster in {self.data} is down: start it by 'up'")
        with self.folder.one_grows(), self.folder.keeper:
            saved, answer = self._saved(), ask(self.folder, "status")
            if answer["phase"] != "running" or answer.get("is_growing", True):
                raise ConfigurationError(f"the cluster in {self.data} is {answer['phase']}, and cannot grow just now")
            there = {node["name"] for node in answer["nodes"]}
            name = next((name for name in saved.spec.broker_names() if name not in there), None)
            if name is None:
                saved = self.folder.grow(saved)
                name = saved.spec.broker_names()[-1]
            try:
                self._start_more(saved, name, there, timeout_seconds)
            except MyQueueError as error:
                raise OutcomeUnknownError(f"{error.message}; {name} belongs to the cluster from now on and will be started again") from error
        return name

    def _start_more(self, saved: Saved, name: str, there: Collection[str], timeout_seconds: float) -> None:
        """Have the supervisor start a broker with all that it needs and is not there, and wait until it is ready."""
        places = self.folder.places(saved, self._server_url)
        job = job_of(saved.spec.postgres_of(name))
        wanted = {name, saved.spec.postgres_of(name), job}
        new = [spec for spec in self._plan(saved, places) if spec.name in wanted and (spec.name not in there or spec.name == job)]
        self.folder.write_pgpass(saved, places)
        ask(self.folder, "grow", nodes=[spec.to_json() for spec in new])
        self._wait(lambda: not ask(self.folder, "status")["is_growing"], timeout_seconds, f"{name} did not start in time")
        failed = ask(self.folder, "status")["growth_failure"]
        if failed:
            raise UnavailableError(f"{failed} failed, so {name} was not started: {self._last_words(failed)}")
        self._await_ready([name], timeout_seconds)

    # --- one node ---

    def start(self, name: str, *, environment: Mapping[str, str] | None = None, timeout_seconds: float = NODE_SECONDS) -> None:
        """Start a node that is down; returns when it is ready. ``environment`` is added for this start."""
        self._tell("start", name, environment=dict(environment or {}))
        try:
            self._await_ready([name], timeout_seconds)
        except UnavailableError:
            with contextlib.suppress(MyQueueError):  # what matters is why it did not start
                ask(self.folder, "stop", node=name)
            raise

    def stop(self, name: str, timeout_seconds: float = NODE_SECONDS) -> None:
        """Ask a node to end and wait until it has; it stays down."""
        self._take_down(name, "stop", timeout_seconds)

    def kill(self, name: str, timeout_seconds: float = NODE_SECONDS) -> None:
        """kill -9 of all processes of a node, as if its machine had crashed; it stays down."""
        self._take_down(name, "kill", timeout_seconds)

    def restart(self, name: str, timeout_seconds: float = NODE_SECONDS) -> None:
        self.stop(name, timeout_seconds)
        self.start(name, timeout_seconds=timeout_seconds)

    def pause(self, name: str) -> None:
        """Stop a node's processes where they stand: it hears and says nothing, but is not gone."""
        self._tell("pause", name)

    def resume(self, name: str) -> None:
        self._tell("resume", name)

    def logs(self, name: str, lines: int = 100) -> list[str]:
        """The last lines of a node's log."""
        known = [*self.names(), "supervisor"]
        if name not in known:
            raise ConfigurationError(f"there is no node {name!r}: there are {', '.join(known)}")
        return self.folder.log_tail(name, lines)

    # --- how ---

    def _saved(self) -> Saved:
        saved = self.folder.load()
        if saved is None:
            raise ConfigurationError(f"there is no cluster in {self.data}: start one by 'up'")
        return saved

    def _wanted(self) -> ClusterSpec | None:
        if self._server_url and self._spec is not None:
            return replace(self._spec, postgres=EXTERNAL)
        return self._spec

    def _transport(self) -> RequestsTransport:
        return RequestsTransport(token=self._token, connect_timeout_seconds=PROBE_SECONDS)

    def _ask_if_there(self) -> dict[str, Any] | None:
        try:
            return ask(self.folder, "status") if self.folder.is_supervised() else None
        except UnavailableError:
            if self.folder.is_supervised():
                raise
            return None  # it ended just now

    def _spawn(self, saved: Saved, *, attached: bool) -> None:
        places = self.folder.places(saved, self._server_url)
        specs = self._plan(saved, places)
        self.folder.before_start(saved, places)
        plan = json.dumps({"attached": attached, "nodes": [spec.to_json() for spec in specs]}).encode() + b"\n"
        with open(os.open(self.folder.logs / "supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
            self._process = subprocess.Popen([sys.executable, "-m", "myqueue.supervisor", str(self.data)], stdin=subprocess.PIPE, stdout=log,
                                             stderr=log, cwd=PROJECT, start_new_session=True)
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(plan)
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it ended at once: the wait for readiness says why
        if not attached:
            self._process.stdin.close()
        self._wait(lambda: self.folder.control_file.exists() or self._process_ended(), NODE_SECONDS, "the supervisor did not start in time")

    def _plan(self, saved: Saved, places: Places) -> list[NodeSpec]:
        return [replace(spec, environment={**spec.environment, **self._environment.get(spec.name, {})})
                for spec in make_plan(saved.spec, places, self._kinds)]

    def _process_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def _await_ready(self, names: list[str], timeout_seconds: float, *, was_up: bool = False) -> None:
        """Wait until these are ready at the same moment. Who was ready is not asked again before all are: a start needs the cores itself.

        Of a cluster that ``was_up`` a node may have ended, and been started again, long ago: only what ends from now on has not started.
        """
        unready = list(names)
        exits_before: dict[str, int] = {} if was_up else dict.fromkeys(names, 0)

        def all_ready() -> bool:
            if not self.folder.is_supervised():
                raise _SupervisorEnded(self._why_it_ended())
            try:
                answer = ask(self.folder, "status")
            except UnavailableError:  # it is just ending, or too busy: looked at again
                return False
            nodes = {node["name"]: node for node in answer["nodes"]}
            for name in names:
                exits_before.setdefault(name, nodes[name]["exits"])
            is_last_look = not unready
            for name in names if is_last_look else tuple(unready):
                node = nodes[name]
                if node["ready"] and (not node["ready_url"] or _readiness(transport, node["ready_url"]) is not None):
                    if not is_last_look:
                        unready.remove(name)
                elif node["exits"] > exits_before[name]:
                    raise UnavailableError(f"{name} did not start (exit code {node['last_exit_code']}): {self._last_words(name)}")
                elif is_last_look:
                    unready.append(name)
            return answer["phase"] == "running" and is_last_look and not unready

        with contextlib.closing(self._transport()) as transport:
            try:
                self._wait(all_ready, timeout_seconds, "")
            except _NotInTime:
                first = unready[0] if unready else "supervisor"
                raise UnavailableError(f"{', '.join(unready) or 'the cluster'} not ready within {timeout_seconds:.0f} s; {first} said: "
                                       f"{self._last_words(first)}") from None

    def _why_it_ended(self) -> str:
        try:
            name = json.loads(self.folder.failure_file.read_text())["node"]
        except FileNotFoundError:
            return f"the supervisor ended: {self._last_words('supervisor')}"
        return f"{name} did not start: {self._last_words(name)}"

    def _last_words(self, name: str) -> str:
        """The end of a log as one line: of JSON lines the message, of repeated ones one."""
        said = [_message_of(line) for line in self.folder.log_tail(name, TAIL_LINES) if line.strip()]
        return " | ".join(dict.fromkeys(said)) or "its log is empty"

    def _tell(self, command: str, name: str, **arguments: Any) -> None:
        self._saved()
        if not self.folder.is_supervised():
            raise ConfigurationError(f"the cluster in {self.data} is down: start it by 'up'")
        ask(self.folder, command, node=name, **arguments)

    def _take_down(self, name: str, command: str, timeout_seconds: float) -> None:
        self._tell(command, name)
        self._wait(lambda: self._state(name) == "down", timeout_seconds, f"{name} did not end in time")

    def _state(self, name: str) -> str:
        return next(node["state"] for node in ask(self.folder, "status")["nodes"] if node["name"] == name)

    def _kill_supervisor(self) -> None:
        if self._process is not None:
            self._process.kill()
        with contextlib.suppress(OSError, ValueError, KeyError):
            signal_all([json.loads(self.folder.control_file.read_text())["pid"]], signal.SIGKILL)

    def _forget_process(self) -> None:
        if self._process is not None:
            if self._process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    self._process.stdin.close()
            self._process.wait(DOWN_SECONDS)
            self._process = None

    def _end_leftovers(self) -> None:
        """End what a killed supervisor left: most of it ended with it, a paused node could not."""
        saved = self.folder.load()
        if saved is None:
            return
        found = marked(MARK, f"{saved.cluster_id}:")
        if not found:
            return
        tree = [pid for root in found for pid in (root, *descendants(root))]
        signal_all(tree, signal.SIGCONT)
        signal_all(found, signal.SIGTERM)
        with contextlib.suppress(_NotInTime):
            self._wait(lambda: not any(map(is_alive, tree)), LEFTOVER_SECONDS, "")
            return
        kill_trees(marked(MARK, f"{saved.cluster_id}:"))

    def _drop_databases(self, saved: Saved) -> None:
        if not self._server_url:
            raise ConfigurationError("this cluster's databases are on a server of your own: DATABASE_URL must name it")
        command = [sys.executable, "-m", "db", "drop", "--prefix", self.folder.prefix(saved), "--nodes", ",".join(saved.spec.database_nodes())]
        done = subprocess.run(command, cwd=PROJECT, env={**os.environ, "MYQUEUE_DB_ADMIN_URL": self._server_url}, capture_output=True, text=True,
                              timeout=DOWN_SECONDS)
        if done.returncode:
            raise UnavailableError(f"the databases could not be removed: {done.stderr.strip()}")

    @staticmethod
    def _wait(condition: Callable[[], bool], timeout_seconds: float, sentence: str) -> None:
        deadline = _clock.monotonic() + timeout_seconds
        while not condition():
            if _clock.monotonic() > deadline:
                raise _NotInTime(sentence)
            time.sleep(POLL_SECONDS)


class _SupervisorEnded(UnavailableError):
    """The supervisor ended while it was waited for."""


class _NotInTime(UnavailableError):
    """It did not happen in time."""


def _message_of(line: str) -> str:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return str(json.loads(line)["message"])
    return line.strip()


def _raft_status(transport: RequestsTransport, url: str) -> dict[str, Any] | None:
    try:
        return dict(call(transport, "GET", url + routes.RAFT_STATUS, read_timeout_seconds=PROBE_SECONDS, repeatable=True))
    except MyQueueError:
        return None


def _partitions(transport: RequestsTransport, url: str) -> dict[str, Any] | None:
    try:
        found = call(transport, "GET", url + routes.HEALTH, read_timeout_seconds=PROBE_SECONDS, repeatable=True).get("partitions")
    except MyQueueError:
        return None
    return dict(found) if isinstance(found, dict) else None


def _ask_node(transport: RequestsTransport, node: dict[str, Any]) -> None:
    """Complete what the supervisor knows of a node by what the node says itself."""
    ready_url = node.pop("ready_url")
    said = _readiness(transport, ready_url) if node["ready"] and ready_url else None
    node["ready"] = bool(node["ready"] and (not ready_url or said is not None))
    if node["kind"] == "broker":
        node["broker_id"] = said.get("broker_id") if said else None
    if node["kind"] == "manager":
        node["raft"] = _raft_status(transport, node["url"]) if node["state"] == "up" else None


def _readiness(transport: RequestsTransport, url: str) -> dict[str, Any] | None:
    """What a node says of itself; None where it is not ready."""
    try:
        with understood():
            return dict(call(transport, "GET", url, read_timeout_seconds=PROBE_SECONDS, repeatable=True))
    except MyQueueError:  # not listening yet, paused, or just dying: not ready
        return None
