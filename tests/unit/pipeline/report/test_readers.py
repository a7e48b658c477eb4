"""Who is asked how far it is, and what becomes of what is not answered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from myqueue.errors import MyQueueError, UnavailableError, UnknownGroupError, UnreachableError
from myqueue.protocol.types import OffsetRange, PartitionId, TopicPartition
from pipeline.report import readers
from pipeline.report.figures import NotAsked, Standing
from pipeline.source.cuts import CutPartition, cut_of

CUT = cut_of("c", [CutPartition(TopicPartition("a", number), PartitionId(1, number), OffsetRange(5, 20)) for number in (0, 1)])


def consumer(number: int, age: float = 1.0) -> dict[str, Any]:
    return {"consumer_id": number, "age_seconds": age}


class Managers:
    """Answers by path; an error is raised."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = {"/v1/groups": {"groups": [{"group": "g"}, {"group": "h"}]}, "/v1/health": {"consumers": [consumer(7)]},
                                        "/v1/groups/h/offsets": {"offsets": []}, **answers}
        self.asked: list[tuple] = []

    def ask(self, path: str, **query: object) -> Any:
        self.asked.append((path, *query.values()))
        answer = self.answers[path]
        if isinstance(answer, MyQueueError):
            raise answer
        return answer

    def registered(self, ids: Sequence[int]) -> Iterable[tuple[int, str]]:
        return [(number, "a") for number in sorted(ids)]


def place(partition: int, offset: int | None, **more: str) -> dict[str, Any]:
    return {"partition": partition, "offset": offset, "start_offset": 0, "end_offset": 30, "lag": 99, **more}


OFFSETS = {"offsets": [place(0, 12, topic="a"), place(1, None, topic="a"), place(0, 3, topic="elsewhere"), place(9, 3, topic="a")]}
LAG = {"topic": "a", "partitions": [place(0, 25), place(1, 2)]}
GROUP_STANDS = (Standing("group", "g", "a", 0, 12, 20, 8), Standing("group", "g", "a", 1, None, 20, 15))
CONSUMER_STANDS = (Standing("consumer", "7", "a", 0, 25, 20, 0), Standing("consumer", "7", "a", 1, 2, 20, 15))


def test_lag_is_counted_to_the_cut() -> None:
    """Who is further has none; who has committed nothing, or less than is left, has all; partitions outside the cut are passed over."""
    managers = Managers(**{"/v1/groups/g/offsets": OFFSETS, "/v1/topics/a/lag": LAG})
    found = readers.ask_readers(managers.ask, managers.registered, CUT)
    assert (GROUP_STANDS + CONSUMER_STANDS, (), 0) == (found.standings, found.not_asked, found.left_out)
    assert ("/v1/topics/a/lag", 7) == managers.asked[-1]


def test_what_went_meanwhile_is_left_out_and_what_does_not_answer_is_said() -> None:
    """The others are asked all the same."""
    managers = Managers(**{"/v1/groups/g/offsets": UnavailableError("no leader"), "/v1/groups/h/offsets": UnknownGroupError(),
                           "/v1/topics/a/lag": LAG})
    found = readers.ask_readers(managers.ask, managers.registered, CUT)
    assert (CONSUMER_STANDS, (NotAsked("group g", "no leader"),)) == (found.standings, found.not_asked)


@pytest.mark.parametrize(("path", "answer", "asked", "not_asked"), [
    ("/v1/groups", UnreachableError("away"), 1, "groups"), ("/v1/groups/g/offsets", UnreachableError("away"), 2, "groups"),
    ("/v1/groups/g/offsets", {"nothing": 1}, 2, "groups"), ("/v1/health", {"consumers": [{}]}, 4, "consumers"),
    ("/v1/topics/a/lag", UnreachableError("away"), 5, "consumers")])
def test_a_cluster_that_does_not_answer_is_asked_no_further(path: str, answer: Any, asked: int, not_asked: str) -> None:
    """And neither is one whose answers cannot be understood."""
    managers = Managers(**{"/v1/groups/g/offsets": OFFSETS, "/v1/topics/a/lag": LAG, path: answer})
    found = readers.ask_readers(managers.ask, managers.registered, CUT)
    assert (asked, [not_asked]) == (len(managers.asked), [one.what for one in found.not_asked])


def test_only_the_consumers_heard_of_last_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are counted."""
    monkeypatch.setattr(readers, "CONSUMERS_ASKED_MAX", 2)
    heard = {"consumers": [consumer(1, 9.0), consumer(2, 1.0), consumer(3, 5.0)]}
    managers = Managers(**{"/v1/groups": {"groups": []}, "/v1/health": heard, "/v1/topics/a/lag": LAG})
    found = readers.ask_readers(managers.ask, managers.registered, CUT)
    assert (["2", "3"], 1, ()) == (sorted({one.name for one in found.standings}), found.left_out, found.not_asked)
