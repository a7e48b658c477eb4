"""``myqueue lag``: how far a consumer is."""

from __future__ import annotations

import argparse
from typing import Any

from . import render
from .connecting import add_bootstrap, admin, existing, number

COLUMNS = ("topic", "partition", "offset", "end_offset", "lag")


def add_parser(groups: Any) -> None:
    """The consumer is named by the id it was registered under."""
    text = "show how far a consumer is"
    parser = groups.add_parser("lag", help=text, description=text)
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("consumer_id", metavar="CONSUMER_ID", type=number(1), help="as the registration or 'consume' told it")
    parser.add_argument("--json", action="store_true", help="as JSON")
    add_bootstrap(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    with admin(arguments) as client:
        lags = client.lag(existing(client, arguments.topic), arguments.consumer_id)
    rows = [{column: getattr(at, column) for column in COLUMNS} for at in lags]
    render.show(rows, COLUMNS, as_json=arguments.json, nothing="there are no partitions")
    return 0
