"""``myqueue brokers``: who keeps the partitions. Alone it shows them."""

from __future__ import annotations

import argparse
from typing import Any

from . import render
from .connecting import add_bootstrap, admin, number

COLUMNS = ("broker_id", "host", "port", "state", "draining", "partitions", "leaders")


def add_parser(groups: Any) -> None:
    """A command for each thing one does with brokers."""
    text = "show, add, drain and remove brokers"
    parser = groups.add_parser("brokers", help=text, description=text)
    commands = parser.add_subparsers(metavar="COMMAND", help="none: list")
    parser.add_argument("--json", action="store_true", help="as JSON")
    add_bootstrap(parser)
    parser.set_defaults(run=_list)

    def command(name: str, run: object, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        add_bootstrap(made, inherited=True)
        made.set_defaults(run=run)
        return made

    command("list", _list, "show the brokers").add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="as JSON")
    add = command("add", _add, "register a broker that runs already, or have one started")
    add.add_argument("address", metavar="HOST:PORT", type=_address, nargs="?",
                     help="where it listens (default: one is started, where a supervisor runs the managers)")
    drain = command("drain", _drain, "let a broker's partitions move away")
    drain.add_argument("broker_id", type=number(1), metavar="BROKER_ID")
    drain.add_argument("--undo", action="store_true", help="use it again")
    remove = command("remove", _remove, "drain a broker and remove it; stop it afterwards")
    remove.add_argument("broker_id", type=number(1), metavar="BROKER_ID")


def _address(text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    if not separator or not host or not (port.isascii() and port.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} does not look like HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _list(arguments: argparse.Namespace) -> int:
    with admin(arguments) as client:
        brokers = client.brokers()
    render.show(brokers, COLUMNS, as_json=arguments.json, nothing="there are no brokers")
    return 0


def _add(arguments: argparse.Namespace) -> int:
    with admin(arguments) as client:
        broker_id = client.start_broker() if arguments.address is None else client.add_broker(*arguments.address)
    print(f"broker {broker_id} is registered")
    return 0


def _drain(arguments: argparse.Namespace) -> int:
    with admin(arguments) as client:
        client.drain_broker(arguments.broker_id, draining=not arguments.undo)
    print(f"broker {arguments.broker_id} is {'used again' if arguments.undo else 'being drained'}")
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    with admin(arguments) as client:
        client.remove_broker(arguments.broker_id)
    print(f"broker {arguments.broker_id} is removed: stop it")
    return 0
