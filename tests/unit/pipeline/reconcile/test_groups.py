"""How far groups are, and what becomes of what is not answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from myqueue.errors import BadRequestError, UnavailableError, UnknownGroupError
from myqueue.protocol.types import OffsetRange, PartitionId, TopicPartition
from pipeline.reconcile.groups import ask_standings
from pipeline.report.figures import NotAsked
from pipeline.source.cuts import CutPartition, cut_of

pytestmark = pytest.mark.timeout(30)
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
CUT = cut_of("c", [CutPartition(name, PartitionId(1, name.partition), OffsetRange(5, 20)) for name in (A0, A1, B0)])


def place(topic: str, partition: int, offset: int | None) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "offset": offset, "lag": 9}


def asking(**answers: Any) -> Any:
    def ask(path: str, **_query: object) -> Mapping[str, Any]:
        answer = answers[path.split("/")[3]]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


def test_a_group_stands_in_every_partition_of_the_topics_that_it_reads() -> None:
    """At 0 where it has committed nothing; not in others, nor in topics that are not compared."""
    ask = asking(g={"offsets": [place("a", 0, 12), place("z", 0, 4)]}, h={"offsets": [place("b", 0, None)]})
    assert ({"g": {A0: 12, A1: 0}, "h": {B0: 0}}, []) == ask_standings(ask, ["g", "h"], CUT)


def test_who_does_not_answer_or_reads_nothing_here_is_said() -> None:
    """The others are asked all the same; an answer that cannot be understood is none."""
    ask = asking(away=UnavailableError("no leader"), odd={"offsets": [{}]}, idle={"offsets": [place("z", 0, 4)]}, g={"offsets": [place("b", 0, 7)]})
    standings, not_asked = ask_standings(ask, ["away", "odd", "idle", "g"], CUT)
    assert {"idle": {}, "g": {B0: 7}} == standings
    assert [NotAsked("group away", "no leader"), NotAsked("group idle", "it reads none of these topics")] == [not_asked[0], not_asked[2]]
    assert ["group away", "group odd", "group idle"] == [one.what for one in not_asked]


@pytest.mark.parametrize(("group", "said"), [("nobody", "--group nobody: there is no such group"), ("a/b", "a group name is")])
def test_a_group_that_is_not_there_is_a_usage_mistake(group: str, said: str) -> None:
    with pytest.raises(BadRequestError, match=said):
        ask_standings(asking(nobody=UnknownGroupError()), [group], CUT)
