"""``myqueue topics``: list, create, describe, alter, add partitions, elect, repair, move, trim, recover."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..errors import BadRequestError
from ..protocol.topic_config import FIELDS, check_config
from . import render
from .connecting import add_bootstrap, admin, existing, number

COLUMNS = ("topic", "topic_id", "partitions", "replication_factor")
RECOVERY_COLUMNS = ("partition", "epoch", "survivors", "gone", "kept_to_offset", "loss")
PARTITION_COLUMNS = ("partition", "leader", "replicas", "wanted", "epoch", "status", "start_offset", "end_offset")


def add_parser(groups: Any) -> None:
    """A command for each thing one does with topics."""
    text = "list, create, describe, alter, extend, move, trim and recover topics"
    parser = groups.add_parser("topics", help=text, description=text)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: object, text: str, *, json: bool = True) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        add_bootstrap(made)
        if json:
            made.add_argument("--json", action="store_true", help="as JSON")
        made.set_defaults(run=run)
        return made

    command("list", _list, "show all topics")
    create = command("create", _create, "create a topic", json=False)
    create.add_argument("topic", metavar="TOPIC", help="1 to 249 of A-Z a-z 0-9 . _ -")
    create.add_argument("--partitions", type=number(1), default=1, metavar="N", help="default: 1")
    create.add_argument("--replication-factor", type=number(1), metavar="N",
                        help="replicas of each partition (default: one on each live broker, at most 3)")
    create.add_argument("--config", type=_setting, action="append", default=[], metavar="FIELD=NUMBER", help=_fields())
    create.add_argument("--if-not-exists", action="store_true", help="succeed where the topic is there already")
    describe = command("describe", _describe, "show a topic's partitions with leaders and offsets")
    describe.add_argument("topic", metavar="TOPIC")
    alter = command("alter", _alter, "change a topic's config")
    alter.add_argument("topic", metavar="TOPIC")
    alter.add_argument("--config", type=_setting, action="append", default=[], metavar="FIELD=NUMBER", help=_fields())
    alter.add_argument("--unset", action="append", default=[], metavar="FIELD", help="take a field out: without it there is no bound")
    more = command("add-partitions", _add_partitions, "give a topic more partitions; records with a key go to other partitions from then on",
                   json=False)
    more.add_argument("topic", metavar="TOPIC")
    more.add_argument("--partitions", type=number(1), required=True, metavar="N", help="how many there are to be in all; none is ever taken away")
    elect = command("elect", _elect, "let another replica lead a partition; leaderships that this makes uneven are evened out again", json=False)
    elect.add_argument("topic", metavar="TOPIC")
    elect.add_argument("--partition", type=number(0), required=True, metavar="N", help="which one, from 0")
    elect.add_argument("--broker-id", type=number(1), metavar="ID", help="who is to lead (default: the replica whose broker leads the fewest)")
    repair = command("repair", _repair, "throw a broker's replica of a partition away and have it made again from the others", json=False)
    repair.add_argument("topic", metavar="TOPIC")
    repair.add_argument("--partition", type=number(0), required=True, metavar="N", help="which one, from 0")
    repair.add_argument("--broker-id", type=number(1), required=True, metavar="ID", help="whose replica is damaged, as an audit says")
    repair.add_argument("--wait", type=number(0, float), default=60.0, metavar="SECONDS",
                        help="until it is whole again, at most so long (default: 60); it goes on by itself in any case")
    move = command("move", _move, "move a partition's replicas to named brokers while it serves; from then on it has as many", json=False)
    move.add_argument("topic", metavar="TOPIC")
    move.add_argument("--partition", type=number(0), required=True, metavar="N", help="which one, from 0")
    where = move.add_mutually_exclusive_group(required=True)
    where.add_argument("--brokers", type=_brokers, metavar="ID,…", help="all that are to hold a replica (brokers list shows them)")
    where.add_argument("--stop", dest="brokers", action="store_const", const=None,
                       help="stop a move where it stands: nothing more is added or taken away")
    move.add_argument("--wait", type=number(0, float), metavar="SECONDS", help="until it is done, at most so long; it goes on by itself in any case")
    trim = command("trim", _trim, "drop a partition's messages below an offset, for all consumers and for good", json=False)
    trim.add_argument("topic", metavar="TOPIC")
    trim.add_argument("--partition", type=number(0), required=True, metavar="N", help="which one, from 0")
    trim.add_argument("--before", type=number(0), required=True, metavar="OFFSET",
                      help="the first offset to keep, at most the end (topics describe shows both); the disk is given back later")
    recover = command("recover", _recover, "show what is left of partitions without a majority of their replicas; let them go on without the rest")
    recover.add_argument("topic", metavar="TOPIC")
    recover.add_argument("--partition", type=number(0), action="append", metavar="N", help="only this one; may be repeated")
    recover.add_argument("--accept-loss", action="store_true", help="go on: what only the brokers that are gone hold is lost for good")


def _fields() -> str:
    return "; ".join(f"{name}: {field.help}" for name, field in sorted(FIELDS.items())) + "; may be repeated"


def _brokers(text: str) -> list[int]:
    """``1,2,3``, as argparse reads it."""
    try:
        return [int(number(1)(part)) for part in text.split(",")]
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r} does not look like 1,2,3") from None


def _setting(text: str) -> tuple[str, int]:
    """``FIELD=NUMBER``, as argparse reads it."""
    name, _, value = text.partition("=")
    try:
        return name, check_config({name: int(value)})[name]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} does not look like FIELD=NUMBER") from None
    except BadRequestError as error:
        raise argparse.ArgumentTypeError(error.message) from None


def _alter(arguments: argparse.Namespace) -> int:
    changes: dict[str, int | None] = {**dict.fromkeys(arguments.unset), **dict(arguments.config)}
    both = sorted({*arguments.unset} & {name for name, _ in arguments.config})
    if not changes or both:
        wrong = f"{', '.join(both)} cannot be set and unset" if both else "say --config FIELD=NUMBER or --unset FIELD"
        print(f"myqueue topics alter: {wrong}", file=sys.stderr)
        return 2
    with admin(arguments) as client:
        config = client.alter_topic(existing(client, arguments.topic), changes)
    rows = [{"field": name, "value": value} for name, value in sorted(config.items())]
    render.show(rows, ("field", "value"), as_json=arguments.json, nothing=f"topic {arguments.topic} has no config")
    return 0


def _recover(arguments: argparse.Namespace) -> int:
    with admin(arguments) as client:
        topic = existing(client, arguments.topic)
        rows = client.recover(topic, arguments.partition) if arguments.accept_loss else client.recovery(topic)
    render.show(rows, RECOVERY_COLUMNS, as_json=arguments.json, nothing=f"every partition of {topic} has the majority of its replicas")
    if rows and not arguments.accept_loss:
        print("nothing was changed: bring the brokers back, or say --accept-loss", file=sys.stderr)
        return 1
    return 0


def _add_partitions(arguments: argparse.Namespace) -> int:
    with admin(arguments) as client:
        added = client.add_partitions(existing(client, arguments.topic), arguments.partitions)
    print(f"topic {arguments.topic} has {_counted(arguments.partitions)}, {added} of them new")
    return 0


def _elect(arguments: argparse.Namespace) -> int:
    with admin(arguments) as client:
        leader = client.elect_leader(existing(client, arguments.topic), arguments.partition, arguments.broker_id)
    print(f"partition {arguments.partition} of topic {arguments.topic} is led by broker {leader}")
    return 0


def _repair(arguments: argparse.Namespace) -> int:
    topic, partition, broker_id = arguments.topic, arguments.partition, arguments.broker_id
    with admin(arguments) as client:
        thrown = client.repair_replica(existing(client, topic), partition, broker_id)
        held = f"offsets {thrown.start}-{thrown.end - 1}" if len(thrown) else "no message"
        print(f"broker {broker_id} throws its replica of partition {partition} of topic {topic} away: {held}", flush=True)
        at = client.wait_for_repair(topic, partition, arguments.wait)
    print(f"it is whole again, made from broker {at.leader}: {_ids(at.replicas)}")
    return 0


def _move(arguments: argparse.Namespace) -> int:
    with admin(arguments) as client:
        at = client.move_partition(existing(client, arguments.topic), arguments.partition, arguments.brokers)
        if arguments.wait is not None:
            at = client.wait_for_move(arguments.topic, arguments.partition, arguments.wait)
    moving = "" if at.wanted is None else f" and moves to {_ids(at.wanted)}"
    print(f"partition {at.partition} of topic {arguments.topic} is on {_ids(at.replicas)}{moving}")
    return 0


def _ids(brokers: Sequence[int]) -> str:
    return f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}"


def _counted(partitions: int) -> str:
    return f"{partitions} partition{'s' if partitions != 1 else ''}"


def _trim(arguments: argparse.Namespace) -> int:
    with admin(arguments) as client:
        start = client.trim(existing(client, arguments.topic), arguments.partition, arguments.before)
    print(f"partition {arguments.partition} of topic {arguments.topic} begins at offset {start}")
    return 0


def _list(arguments: argparse.Namespace) -> int:
    with admin(arguments) as client:
        rows = [{column: getattr(topic, column) for column in COLUMNS} for topic in client.topics()]
    render.show(rows, COLUMNS, as_json=arguments.json, nothing="there are no topics")
    return 0


def _create(arguments: argparse.Namespace) -> int:
    with admin(arguments) as client:
        topic = client.create_topic(arguments.topic, partitions=arguments.partitions, replication_factor=arguments.replication_factor,
                                    config=dict(arguments.config) or None, exist_ok=arguments.if_not_exists)
    print(f"topic {topic.topic} has {_counted(topic.partitions)}")
    return 0


def _describe(arguments: argparse.Namespace) -> int:
    with admin(arguments) as client:
        topic = client.describe_topic(existing(client, arguments.topic))
        offsets = {at.partition: ends for at, ends in client.offsets(topic.topic).items()}
    rows = [asdict(at) | {"start_offset": offsets[at.partition].start, "end_offset": offsets[at.partition].end}
            for at in topic.partition_list if at.partition in offsets]
    render.show(rows, PARTITION_COLUMNS, as_json=arguments.json, nothing=f"topic {topic.topic} has no partition yet")
    return 0
