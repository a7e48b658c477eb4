"""``myqueue health``: who was heard of lately."""

from __future__ import annotations

import argparse
import json
from typing import Any

from . import render
from .connecting import add_bootstrap, admin

COLUMNS = ("kind", "id", "state", "age_seconds")
SERVERS = ("brokers", "managers")


def add_parser(groups: Any) -> None:
    text = "show who was heard of lately; exit code 1 where a broker or manager is not alive"
    parser = groups.add_parser("health", help=text, description=text)
    parser.add_argument("--json", action="store_true", help="as JSON, exactly as the cluster answers")
    parser.add_argument("--all", action="store_true", help="producers and consumers too, not only brokers and managers")
    add_bootstrap(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Exit code 1 where a broker or manager is not alive."""
    with admin(arguments) as client:
        health = client.health()
    if arguments.json:
        print(json.dumps(health, indent=2))
    else:
        rows = [{"kind": kind[:-1], **actor} for kind, actors in health.items() if arguments.all or kind in SERVERS for actor in actors]
        render.show(rows, COLUMNS, as_json=False, nothing="nobody was heard of")
    return 0 if all(actor["state"] == "alive" for kind in SERVERS for actor in health.get(kind, ())) else 1
