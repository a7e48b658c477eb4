"""An operator's way out where a majority of a partition's replicas is gone for good.

Nothing of this happens by itself: what was acknowledged may be on the brokers that are gone and nowhere else. It is first
said what is left and what may be lost; only who accepts that goes on, with the replicas that there are. The decision is a
command in the managers' log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from manager.brokers import Brokers
from manager.catalogue import Catalogue, Topic, partition_id, replicas_of
from manager.cluster import commands
from manager.cluster.election import Outlook, Replicas
from manager.replica import Replica
from myqueue.errors import MyQueueError, RefusedError

STATUS_SECONDS = 2.0


class Recovery:
    """Tells of partitions without a majority, and lets them go on."""

    def __init__(self, *, propose: Callable[[commands.Command], dict[str, Any]], replica: Replica, brokers: Brokers,
                 outlook: Callable[[Catalogue], Outlook]) -> None:
        self._propose, self._replica, self._brokers, self._outlook = propose, replica, brokers, outlook

    def report(self, name: str) -> list[dict[str, Any]]:
        """The topic's partitions that have no majority of live replicas: what is left of each, and what may be lost without the rest."""
        return self._report(*self._replica.certain(lambda known: (known, known.topic(name))))

    def force(self, name: str, partitions: Sequence[int] | None = None) -> list[dict[str, Any]]:
        """Let partitions without a majority (those, or all of the topic) go on with the replicas that are left; the report of each.

        Raises:
            RefusedError: one of them has a majority, or no replica at all is left of it. Nothing was done.
        """
        catalogue = self._replica.fresh()
        topic = catalogue.topic(name)
        found = self._report(catalogue, topic)
        chosen = found if partitions is None else [one for one in found if one["partition"] in partitions]
        whole = sorted(set(partitions or ()) - {one["partition"] for one in chosen})
        if whole:
            raise RefusedError(f"partition {', '.join(map(str, whole))} of topic '{name}' has a majority: there is nothing to give up")
        lost = [str(one["partition"]) for one in chosen if not one["survivors"]]
        if lost:
            raise RefusedError(f"no replica is left of partition {', '.join(lost)}: delete the topic '{name}', or bring a broker back")
        if chosen:
            items = self._propose(commands.ForceElections(tuple(_item(topic, one) for one in chosen)))["items"]
            failed = [item["message"] for item in items if not item["ok"]]
            if failed:
                raise RefusedError(f"{len(failed)} partition(s) have changed meanwhile: {failed[0]}; ask again")
        return chosen

    def _report(self, catalogue: Catalogue, topic: Topic) -> list[dict[str, Any]]:
        outlook = self._outlook(catalogue)
        return [self._of(catalogue, replicas, outlook) for replicas in map(replicas_of, topic.partitions) if not outlook.can_elect(replicas.voters)]

    def _of(self, catalogue: Catalogue, replicas: Replicas, outlook: Outlook) -> dict[str, Any]:
        survivors = sorted(outlook.answering(replicas.voters))
        gone = sorted(set(replicas.voters) - set(survivors))
        ends = [end for broker_id in survivors if (end := self._end(catalogue, broker_id, replicas)) is not None]
        kept = max(ends, default=None)
        rest = "how much of it survives is not known" if kept is None else f"what lies below offset {kept} survives"
        return {"partition": replicas.partition.partition, "epoch": replicas.epoch, "survivors": survivors, "gone": gone, "kept_to_offset": kept,
                "loss": f"messages and consumer offsets that were acknowledged and only broker {', '.join(map(str, gone))} holds; {rest}"}

    def _end(self, catalogue: Catalogue, broker_id: int, replicas: Replicas) -> int | None:
        try:
            found = self._brokers.status(broker_id, catalogue.address(broker_id), [replicas.partition], timeout_seconds=STATUS_SECONDS)
        except MyQueueError:
            return None  # told as not known
        return found[0]["end_offset"] if found else 0


def _item(topic: Topic, report: dict[str, Any]) -> commands.BeginElection:
    row = topic.partition(report["partition"])
    left = {slot: disk_id for slot, disk_id in row.voters.items() if int(slot) in report["survivors"]}
    return commands.BeginElection(*partition_id(row), report["epoch"], left)
