"""``myqueue groups``: consumer groups, who is in them, and how far they are."""

from __future__ import annotations

import argparse
from typing import Any

from ..errors import BadRequestError
from ..protocol.names import parse_integer
from ..protocol.types import TopicPartition
from . import render
from .connecting import add_bootstrap, admin, existing, number

COLUMNS = ("group", "generation", "strategy", "start", "members")
MEMBER_COLUMNS = ("member_id", "instance_id", "topics", "partitions", "releasing")
LAG_COLUMNS = ("topic", "partition", "offset", "end_offset", "lag")


def add_parser(groups: Any) -> None:
    """List, look, set back, forget."""
    text = "show consumer groups, and set or forget where they stand"
    parser = groups.add_parser("groups", help=text, description=text)
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    def action(name: str, help: str, run: Any, *, named: bool = True, json: bool = True) -> argparse.ArgumentParser:
        made = actions.add_parser(name, help=help, description=help)
        if named:
            made.add_argument("group", metavar="GROUP")
        if json:
            made.add_argument("--json", action="store_true", help="as JSON")
        add_bootstrap(made)
        made.set_defaults(run=run)
        return made

    action("list", "every group", _list, named=False)
    action("describe", "who is in a group, and what each member reads", _describe)
    action("lag", "how far a group is, by partition", _lag)
    reset = action("reset", "let a group without members go on elsewhere", _reset)
    reset.add_argument("topic", metavar="TOPIC")
    reset.add_argument("--partition", type=number(0), metavar="N", help="of the topic (default: all)")
    reset.add_argument("--to", required=True, type=_offset, metavar="OFFSET", help="a number, earliest or latest")
    action("delete", "forget a group without members, and where it stands", _delete, json=False)


def _offset(text: str) -> int | str:
    if text in ("earliest", "latest"):
        return text
    try:
        return parse_integer(text, name="the offset")
    except BadRequestError as error:
        raise argparse.ArgumentTypeError(f"{error.message}; or earliest or latest") from None


def _list(arguments: argparse.Namespace) -> int:
    with admin(arguments) as client:
        render.show(client.groups(), COLUMNS, as_json=arguments.json, nothing="there are no groups")
    return 0


def _describe(arguments: argparse.Namespace) -> int:
    with admin(arguments) as client:
        found = client.describe_group(arguments.group)
    rows = [{**member, "topics": " ".join(member["topics"]), "partitions": _named(member["partitions"]), "releasing": _named(member["releasing"])}
            for member in found["member_list"]]
    render.show(rows, MEMBER_COLUMNS, as_json=arguments.json, nothing=f"group {arguments.group} has no members")
    return 0


def _named(partitions: list[dict[str, Any]]) -> str:
    return " ".join(f"{one['topic']}/{one['partition']}" for one in partitions)


def _lag(arguments: argparse.Namespace) -> int:
    with admin(arguments) as client:
        rows = [{column: getattr(at, column) for column in LAG_COLUMNS} for at in client.group_lag(arguments.group)]
    render.show(rows, LAG_COLUMNS, as_json=arguments.json, nothing=f"group {arguments.group} has committed nothing")
    return 0


def _reset(arguments: argparse.Namespace) -> int:
    with admin(arguments) as client:
        topic = client.describe_topic(existing(client, arguments.topic))
        wanted = range(topic.partitions) if arguments.partition is None else [arguments.partition]
        done = client.set_group_offsets(arguments.group, {TopicPartition(topic.topic, partition): arguments.to for partition in wanted})
    rows = [{"topic": place.topic, "partition": place.partition, "offset": offset} for place, offset in sorted(done.items())]
    render.show(rows, ("topic", "partition", "offset"), as_json=arguments.json, nothing="nothing was set")
    return 0


def _delete(arguments: argparse.Namespace) -> int:
    with admin(arguments) as client:
        client.delete_group(arguments.group)
    print(f"group {arguments.group} is forgotten")
    return 0
