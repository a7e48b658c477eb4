"""PURE: whether a broker's replica of a partition may be thrown away and made again from the others, where an operator asks for it.

What must never happen: a replica goes whose entries a majority of what is left may need. So the others must be a majority by themselves, and
sound, and the broker is taken out of the voters first, which is compare-and-set on the epoch: of two who ask at the same time for different
brokers one is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from db.replication import has_majority
from manager.cluster.election import Outlook, Replicas, is_settled, is_sound
from myqueue.errors import BadRequestError, RefusedError, UnavailableError


def voters_without(replicas: Replicas, outlook: Outlook, broker_id: int, statuses: Mapping[int, Mapping[str, Any] | None]) -> dict[int, str | None]:
    """The voters with this broker's slot emptied, to be filled again.

    Args:
        statuses: of each broker what it says of the partition; None where it did not answer or does not hold it.

    Raises:
        BadRequestError: it holds no replica of the partition.
        RefusedError: it is being filled already, or the others are no majority.
        UnavailableError: the broker does not answer, an election is under way, or the leader has not committed anything in its epoch yet. Ask again.
    """
    if broker_id not in replicas.voters and broker_id not in replicas.learners:
        raise BadRequestError(f"broker {broker_id} holds no replica of the partition", broker_id=broker_id)
    if replicas.voters.get(broker_id) is None:
        raise RefusedError(f"broker {broker_id} is getting its replica of the partition just now", broker_id=broker_id)
    emptied: dict[int, str | None] = {**replicas.voters, broker_id: None}
    whole = {voter: disk for voter, disk in outlook.answering(emptied).items() if is_sound(told := statuses.get(voter)) and not told["seeding"]}
    if not has_majority(emptied, whole):
        raise RefusedError("the other replicas that are whole and answer are no majority: nothing could be taken from them", broker_id=broker_id)
    if statuses.get(broker_id) is None:
        raise UnavailableError(f"broker {broker_id} does not answer, or has nothing of the partition: nothing was done", broker_id=broker_id)
    if replicas.electing or replicas.leader is None or not is_settled(statuses.get(replicas.leader), replicas):
        raise UnavailableError("the partition has no leader that has committed in its epoch yet: ask again; nothing was done")
    return emptied
