"""How far consumer groups have committed, as the managers know it."""

from __future__ import annotations

from collections.abc import Sequence

from myqueue.client.transport import understood
from myqueue.errors import BadRequestError, MyQueueError, NotFoundError
from myqueue.protocol import routes
from myqueue.protocol.names import check_group_name
from myqueue.protocol.types import TopicPartition

from ..cluster import connected
from ..databases import Limits
from ..report.figures import NotAsked
from ..report.readers import Ask, asker
from ..source.cuts import Cut

Standing = dict[TopicPartition, int]


def fetch_standings(bootstrap: str, groups: Sequence[str], cut: Cut, limits: Limits) -> tuple[dict[str, Standing], list[NotAsked]]:
    """As ``ask_standings``, with calls to the cluster where there is a group to ask for."""
    if not groups:
        return {}, []
    with connected(bootstrap) as connection:
        return ask_standings(asker(connection, limits), groups, cut)


def ask_standings(ask: Ask, groups: Sequence[str], cut: Cut) -> tuple[dict[str, Standing], list[NotAsked]]:
    """For each group where it goes on, in every partition of those topics of the cut that it reads: 0 where it has committed nothing. Who does not
    answer, and who reads none of the topics, is said.

    Raises:
        BadRequestError: there is no such group.
    """
    standings: dict[str, Standing] = {}
    not_asked: list[NotAsked] = []
    for group in groups:
        try:
            with understood():
                offsets = ask(routes.GROUP_OFFSETS.format(group=check_group_name(group)))["offsets"]
                committed = {TopicPartition(one["topic"], one["partition"]): one["offset"] or 0 for one in offsets}
        except NotFoundError:
            raise BadRequestError(f"--group {group}: there is no such group") from None
        except BadRequestError:
            raise
        except MyQueueError as error:
            not_asked.append(NotAsked(f"group {group}", error.message))
            continue
        read = {name.topic for name in committed}
        standings[group] = {name: committed.get(name, 0) for name in cut.partitions if name.topic in read}
        if not standings[group]:
            not_asked.append(NotAsked(f"group {group}", "it reads none of these topics"))
    return standings, not_asked
