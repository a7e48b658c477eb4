"""``myqueue cluster``: a whole cluster on this machine."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
import types
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError, MyQueueError, UnavailableError
from ..supervisor import Cluster, ClusterSpec
from ..supervisor.folder import Saved
from ..supervisor.spec import DEFAULT_PORT, PER_NODE, SHARED
from .connecting import number
from .health import troubles

DEFAULT_DATA = ".myqueue"
LOG_LINES = 100


def add_parser(groups: Any) -> None:
    """``up``, ``down``, ``status``, ``reset`` for all of it; ``start`` … ``logs`` for one node."""
    text = "start, watch and stop a cluster on this machine"
    parser = groups.add_parser("cluster", help=text, description=text)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: object, text: str, *, node: bool = False) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.add_argument("--data", type=Path, default=Path(os.environ.get("MYQUEUE_DATA") or DEFAULT_DATA),
                          help=f"data folder (MYQUEUE_DATA; default: {DEFAULT_DATA} in the current folder)")
        if node:
            made.add_argument("node", metavar="NODE", help="balancer, manager-1, broker-1, postgres …")
        made.set_defaults(run=run)
        return made

    up = command("up", _up, "start everything and return when it is ready; DATABASE_URL names a PostgreSQL server of your own to use instead "
                            "of the embedded one")
    up.add_argument("--brokers", type=int, metavar="N", help="how many brokers (default: 3, or as before)")
    up.add_argument("--managers", type=int, metavar="N", help="how many managers, an odd number (default: 3, or as before)")
    up.add_argument("--port", type=int, action="append", metavar="PORT",
                    help=f"where the balancer listens on 127.0.0.1; may be repeated; 0 picks a free one (default: {DEFAULT_PORT}, or as before)")
    up.add_argument("--postgres", choices=(SHARED, PER_NODE), help="one PostgreSQL for all nodes or one for each (default: shared, or as before)")
    up.add_argument("--foreground", action="store_true", help="stay, and end everything on Ctrl-C or SIGTERM")
    command("down", _down, "end everything; the data stays")
    status = command("status", _status, "show every node with its state, URL, process id and database")
    status.add_argument("--json", action="store_true", help="as JSON")
    reset = command("reset", _reset, "end everything and delete all data")
    reset.add_argument("--yes", action="store_true", help="yes, delete it")

    add = command("add-broker", _add_broker, "start one broker more in a cluster that is up; it gets replicas of new topics, and those of "
                                              "brokers that are drained or lost")
    add.add_argument("--json", action="store_true", help="as JSON: name, url; or error, outcome")

    for name, text in (("start", "start a node that is down"), ("stop", "end a node cleanly; it stays down"), ("restart", "stop and start a node"),
                       ("kill", "kill -9 all processes of a node; it stays down"), ("pause", "freeze a node: it hears and says nothing"),
                       ("resume", "let a frozen node go on")):
        command(name, _node, text, node=True).set_defaults(verb=name)
    logs = command("logs", _logs, "show the end of a node's log (supervisor: the supervisor's)", node=True)
    logs.add_argument("--lines", type=number(1), default=LOG_LINES, metavar="N", help=f"how many lines (default: {LOG_LINES})")


def _cluster(arguments: argparse.Namespace, spec: ClusterSpec | None = None) -> Cluster:
    return Cluster(arguments.data, spec, server_url=os.environ.get("DATABASE_URL"), token=os.environ.get("MYQUEUE_TOKEN"))


def _up(arguments: argparse.Namespace) -> int:
    before = Cluster(arguments.data).folder.load()
    try:
        spec = _spec(arguments, before)
    except ConfigurationError as error:
        print(f"myqueue: {error.message}", file=sys.stderr)
        return 2
    cluster = _cluster(arguments, spec)
    signal.signal(signal.SIGTERM, _interrupt)
    print(f"starting the cluster in {cluster.data} …", flush=True)
    try:
        cluster.up(attached=arguments.foreground)
        _print_nodes(cluster.status())
        if arguments.foreground:
            print(f"ready: http://{cluster.bootstrap} (Ctrl-C ends it)", flush=True)
            return _stay(cluster)
    except KeyboardInterrupt:
        print("\nended: everything was taken down again", file=sys.stderr)
        return 1
    print(f"ready: http://{cluster.bootstrap} (data in {cluster.data}, end it by: {_ending(arguments)})")
    return 0


def _stay(cluster: Cluster) -> int:
    try:
        cluster.watch()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # ending is bounded: a second Ctrl-C must not leave half of it
        print("\nending …", flush=True)
        cluster.down()
        print("down: the data stays")
        return 0
    cluster.down()
    raise UnavailableError(f"the supervisor ended by itself (log: {cluster.folder.logs / 'supervisor.log'})")


def _interrupt(_number: int, _frame: types.FrameType | None) -> None:
    raise KeyboardInterrupt


def _ending(arguments: argparse.Namespace) -> str:
    """The command that takes this cluster down, from the same folder."""
    data = "" if arguments.data == Path(DEFAULT_DATA) else f" --data {shlex.quote(str(arguments.data))}"
    return f"scripts/cluster down{data}"


def _spec(arguments: argparse.Namespace, before: Saved | None) -> ClusterSpec | None:
    """What was asked for over what is there; None if nothing was asked for and something is there. ConfigurationError: no cluster has that shape."""
    given = {name: getattr(arguments, name) for name in ("brokers", "managers", "postgres") if getattr(arguments, name) is not None}
    if arguments.port:
        given["ports"] = tuple(arguments.port)
    if before is None:
        return ClusterSpec(**given)
    if not given:
        return None
    merged = {"brokers": before.spec.brokers, "managers": before.spec.managers, "ports": before.spec.ports, "postgres": before.spec.postgres, **given}
    return ClusterSpec(**merged)


def _down(arguments: argparse.Namespace) -> int:
    cluster = _cluster(arguments)
    cluster.names()  # a mistyped folder is told, not taken for a cluster that is down
    cluster.down()
    print(f"down: the data stays in {cluster.data}")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    status = _cluster(arguments).status()
    if arguments.json:
        print(json.dumps(status, indent=2))
    else:
        _print_nodes(status)
        _print_managers(status)
        if status.get("partitions"):
            lines = troubles(status) or [f"{status['partitions']['count']} partition(s), each with a leader and all of its replicas"]
            print("\n".join(lines))
        print(f"{status['state']}: http://{status['bootstrap']} (data in {status['data']})")
    return 0


def _reset(arguments: argparse.Namespace) -> int:
    cluster = _cluster(arguments)
    if not arguments.yes:
        print(f"myqueue: this deletes all data in {cluster.data}: say --yes if you mean it", file=sys.stderr)
        return 2
    cluster.reset()
    print(f"gone: {cluster.data} and all its data")
    return 0


def _add_broker(arguments: argparse.Namespace) -> int:
    cluster = _cluster(arguments)
    try:
        name = cluster.add_broker()
    except MyQueueError as error:
        if arguments.json:
            print(json.dumps({"error": error.message, "outcome": error.outcome}))
        raise
    url = cluster.node(name)["url"]
    print(json.dumps({"name": name, "url": url}) if arguments.json else f"{name}: up at {url}")
    return 0


def _node(arguments: argparse.Namespace) -> int:
    cluster = _cluster(arguments)
    getattr(cluster, arguments.verb)(arguments.node)
    node = cluster.node(arguments.node)
    print(f"{arguments.node}: {node['state']}" + (f" as pid {node['pid']}" if node["pid"] else ""))
    return 0


def _logs(arguments: argparse.Namespace) -> int:
    for line in _cluster(arguments).logs(arguments.node, arguments.lines):
        print(line)
    return 0


def _print_nodes(status: dict) -> None:
    """A line per node."""
    rows = [("node", "broker id", "state", "pid", "address", "database")]
    for node in status["nodes"]:
        database = node["database"]
        state = node["state"] if node["ready"] or node["state"] != "up" else "up, not ready"
        rows.append((node["name"], str(node.get("broker_id") or "-"), state, str(node["pid"] or "-"), node["url"] or "-",
                     f"{database['host']}:{database['port']}/{database['name']}" if database else "-"))
    _print_table(rows)


def _print_managers(status: dict) -> None:
    """A line per manager that runs: what it knows of the others, and how old that may be."""
    nodes = [node for node in status["nodes"] if node["kind"] == "manager" and node["state"] != "down"]
    names = {node["url"]: node["name"] for node in nodes}
    rows = [("manager", "role", "term", "leader", "commit", "applied", "freshness")]
    for node in nodes:
        raft = node.get("raft")
        if raft is None:
            rows.append((node["name"], "does not answer", "-", "-", "-", "-", "-"))
            continue
        leader = names.get(raft["leader"], raft["leader"]) or "none: cut off, or no majority"
        rows.append((node["name"], raft["state"], str(raft["raft_term"]), leader, str(raft["commit_idx"]), str(raft["last_applied"]),
                     "never heard a leader" if raft["freshness_seconds"] is None else f"{raft['freshness_seconds']:.1f} s"))
    if nodes:
        print()
        _print_table(rows)
        print()


def _print_table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
