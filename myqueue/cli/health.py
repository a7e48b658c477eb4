"""``myqueue health``: who was heard of lately."""

from __future__ import annotations

import argparse
import json
from typing import Any

from . import render
from .connecting import add_bootstrap, admin

COLUMNS = ("kind", "id", "state", "age_seconds")
SERVERS = ("brokers", "managers")
ACTORS = (*SERVERS, "producers", "consumers")
TROUBLES = {"leaderless": "without a leader", "without_majority": "without a majority of their replicas: no writes",
            "under_replicated": "with fewer live replicas than wanted"}
NAMED_MAX = 5


def add_parser(groups: Any) -> None:
    text = "show who was heard of lately; exit code 1 where a broker or manager is not alive or a partition has no leader"
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
        rows = [{"kind": kind[:-1], **actor} for kind in (ACTORS if arguments.all else SERVERS) for actor in health.get(kind, ())]
        render.show(rows, COLUMNS, as_json=False, nothing="nobody was heard of")
        print("\n".join(troubles(health)) or "every partition has a leader and all of its replicas")
    partitions = health.get("partitions", {})
    well = not partitions.get("leaderless", {}).get("count")
    return 0 if well and all(actor["state"] == "alive" for kind in SERVERS for actor in health.get(kind, ())) else 1


def troubles(health: dict[str, Any]) -> list[str]:
    """A line for each thing that is wrong with partitions."""
    lines = []
    for name, text in TROUBLES.items():
        found = health.get("partitions", {}).get(name, {})
        if found.get("count"):
            named = ", ".join(f"{one['topic']}/{one['partition']}" for one in found["partitions"][:NAMED_MAX])
            lines.append(f"{found['count']} partition(s) {text}: {named}{' …' if found['count'] > NAMED_MAX else ''}")
    return lines
