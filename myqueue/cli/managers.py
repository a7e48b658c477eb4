"""``myqueue managers``: who keeps the metadata, and who votes about it."""

from __future__ import annotations

import argparse
import threading
from typing import Any

from ..client.admin import AdminClient
from ..clock import SystemClock
from . import render
from .connecting import add_bootstrap, admin, number

COLUMNS = ("node_id", "url", "role", "state", "voter")
LOOK_SECONDS = 0.5


def add_parser(groups: Any) -> None:
    """A command for each thing one does with managers."""
    text = "show, add and remove managers"
    parser = groups.add_parser("managers", help=text, description=text)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: object, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        add_bootstrap(made)
        made.set_defaults(run=run)
        return made

    command("list", _list, "show the managers").add_argument("--json", action="store_true", help="as JSON")
    add = command("add", _add, "add a manager that runs already, with an empty database and all managers in its --managers")
    add.add_argument("node_id", type=number(1), metavar="NODE_ID", help="its --node-id")
    add.add_argument("url", metavar="URL", help="its address, http://host:port")
    add.add_argument("--wait-seconds", type=number(0), default=30, metavar="N", help="wait until it votes; default: 30")
    remove = command("remove", _remove, "remove a manager; stop it afterwards")
    remove.add_argument("node_id", type=number(1), metavar="NODE_ID")


def _list(arguments: argparse.Namespace) -> int:
    with admin(arguments) as client:
        managers = client.managers()
    render.show(managers, COLUMNS, as_json=arguments.json, nothing="the managers have no members yet")
    return 0


def _add(arguments: argparse.Namespace) -> int:
    with admin(arguments) as client:
        client.add_manager(arguments.node_id, arguments.url)
        if _votes(client, arguments.node_id, arguments.wait_seconds):
            print(f"manager {arguments.node_id} votes")
        else:
            print(f"manager {arguments.node_id} gets the log; it will vote when it has caught up")
    return 0


def _votes(client: AdminClient, node_id: int, wait_seconds: int) -> bool:
    clock, pause = SystemClock(), threading.Event()
    end = clock.monotonic() + wait_seconds
    while not any(one["voter"] for one in client.managers() if one["node_id"] == node_id):
        if clock.monotonic() >= end:
            return False
        pause.wait(LOOK_SECONDS)
    return True


def _remove(arguments: argparse.Namespace) -> int:
    with admin(arguments) as client:
        client.remove_manager(arguments.node_id)
    print(f"manager {arguments.node_id} is no member any more: stop it, or it goes on answering reads")
    return 0
