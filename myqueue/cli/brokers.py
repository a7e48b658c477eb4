"""``myqueue brokers``: who keeps the partitions."""

from __future__ import annotations

import argparse
from typing import Any

from . import render
from .connecting import add_bootstrap, admin

COLUMNS = ("broker_id", "host", "port", "state")


def add_parser(groups: Any) -> None:
    text = "show the brokers"
    parser = groups.add_parser("brokers", help=text, description=text)
    parser.add_argument("--json", action="store_true", help="as JSON")
    add_bootstrap(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    with admin(arguments) as client:
        brokers = client.brokers()
    render.show(brokers, COLUMNS, as_json=arguments.json, nothing="there are no brokers")
    return 0
