"""A follower behind the leader's start: when an offered new start is taken, and what it replaces."""

from __future__ import annotations

from dataclasses import dataclass

from db.replication.append import ReplicaState
from db.replication.log import LogView, holds_border
from myqueue.errors import LogFaultError


@dataclass(frozen=True, slots=True)
class OfferedStart:
    """Where a log would begin: everything below ``position`` is committed and comes as state instead of entries."""

    position: int
    epoch: int  # of the entry before ``position``
    chain: bytes  # of the entry before ``position``


def accepts_start(log: LogView, offered: OfferedStart) -> bool:
    """Whether to replace this log by the offered start.

    Only where it is above ours and we do not hold its border: a log that holds the border holds all below, and perhaps more
    behind it that was acknowledged; replacing it would lose that. An old offer that comes late changes nothing.
    """
    return offered.position > log.start and not holds_border(log, offered.position, offered.epoch)


def takes_start(replica: ReplicaState, log: LogView, offered: OfferedStart, *, epoch: int) -> bool:
    """Whether a replica begins anew at a start that was offered in ``epoch``. The answer to an append at that border says the rest.

    Raises:
        LogFaultError: another leader in an epoch that is led here, or the start lies in what is committed here and is not the same.
            Nothing may be written but the fault.
    """
    if epoch < replica.promised_epoch:
        return False
    if replica.leading and epoch == replica.promised_epoch:
        raise LogFaultError(f"two leaders in epoch {epoch}")
    if not accepts_start(log, offered):
        return False
    if offered.position <= replica.commit:
        raise LogFaultError(f"a start at {offered.position} of epoch {offered.epoch} is offered in epoch {epoch}, and what is committed here "
                            f"up to {replica.commit} differs")
    return True
