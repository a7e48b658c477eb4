"""A reconciliation as JSON, as a table and as a page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from myqueue.errors import BadRequestError
from myqueue.protocol.types import OffsetRange, PartitionId, TopicPartition
from pipeline.reconcile import summary
from pipeline.reconcile.coverage import Tally
from pipeline.reconcile.figures import KINDS, Asked, Difference, Judged, ReceiptsRead, Reconciliation, Row
from pipeline.reconcile.page import to_html
from pipeline.reconcile.summary import sentence, to_json, to_text
from pipeline.report.figures import NotAsked
from pipeline.source.cuts import CutPartition, cut_of
from tests.support.markup import check_page

pytestmark = pytest.mark.timeout(30)
PERIOD = 1_700_000_400_000_000  # 2023-11-14 22:20
CUT = cut_of("c", [CutPartition(TopicPartition(topic, 0), PartitionId(1, 0), OffsetRange(0, 4)) for topic in ("a", "b")])
ASKED = Asked(("r/*",), ("g", "h"), "out")
ROW = Row(TopicPartition("a", 0), PERIOD, Tally(1_204, 9), 0, 3, Tally(1_204, 9), {"g": 1_204}, Tally(1_203, 8))
NOT_EXPORTED = Difference("not_exported", "a", 1, 0, 3, 4, PERIOD)
NOT_JUDGED = NotAsked("group h", "<away>")
READ = ReceiptsRead(("r/1",), 5, 1_204, 1)


def made(*differences: Difference, not_judged: tuple[NotAsked, ...] = (), asked: Asked = ASKED) -> Reconciliation:
    return Reconciliation("2026-01-01T00:00:00+00:00", 1.25, asked, CUT, CUT, Judged((ROW,), differences, not_judged), READ)


@pytest.mark.parametrize(("reconciliation", "code", "last"), [
    (made(), 0, "reconciled: acknowledged, consumed by g, consumed by h and exported equal what is stored; 1,204 messages of 2 topics stored"),
    (made(NOT_EXPORTED, not_judged=(NOT_JUDGED,)), 1, "not reconciled: 1 differences of 1 messages; 1,204 messages of 2 topics stored"),
    (made(not_judged=(NOT_JUDGED,)), 2,
     "reconciliation incomplete: 1 things could not be judged, the others are equal; 1,204 messages of 2 topics stored")])
def test_the_last_line_says_the_result(reconciliation: Reconciliation, code: int, last: str) -> None:
    """As do the exit code and the JSON."""
    body = json.loads(json.dumps(to_json(reconciliation)))
    assert (code, f"{last}, out/reconcile.html, 1.2 s") == (reconciliation.exit_code, to_text(reconciliation, Path("out")).split("\n")[-1])
    assert (1, code, reconciliation.result) == (body["schema_version"], body["exit_code"], body["result"])


def test_the_table_marks_what_differs() -> None:
    """A line a topic, also of one with nothing; – for a group that does not read it."""
    lines = [line.split() for line in to_text(made(NOT_EXPORTED, not_judged=(NOT_JUDGED,)), Path("out")).split("\n")]
    assert [["a", "1,204", "1,204", "1,204", "–", "1,203", "≠", "1"], ["b", "0", "–", "–", "–", "–", "0"]] == lines[1:3]
    assert ["DIFFERS a/0 offset 3 (2023-11-14 22:20): 1 message not exported", "NOT JUDGED group h: <away>"] == [
        " ".join(line) for line in lines[3:5]]


def test_each_column_is_marked_by_itself() -> None:
    """Also what the log lacks, and each group; the JSON says the same."""
    both = made(Difference("not_consumed", "a", 1, 0, 3, 4, PERIOD, "g"), Difference("missing", "a", 1, 0, 4, 5, PERIOD))
    assert ["a", "1,204", "≠", "1,204", "1,204", "≠", "–", "1,203", "1"] == to_text(both, Path("out")).split("\n")[1].split()
    assert {"acknowledged": True, "exported": True, "consumed": {"g": False}} == to_json(both)["periods"][0]["equal"]


@pytest.mark.parametrize(("one", "said"), [
    (Difference("lost", "a", 3, 0, 7, 10, PERIOD), "a/0 offsets 7 to 9 (2023-11-14 22:20): 3 messages acknowledged and not stored: lost"),
    (Difference("missing", "a", 2, 0, 0, 2), "a/0 offsets 0 to 1: 2 messages missing in the log: run an audit"),
    (Difference("not_consumed", "a", 1, 0, 3, 4, PERIOD, "g"), "a/0 offset 3 (2023-11-14 22:20): 1 message not consumed yet by group g"),
    (Difference("exported_twice", "a", 1, 0, 3, 4, PERIOD, times=3), "a/0 offset 3 (2023-11-14 22:20): 1 message exported more than once (3 times)"),
    (Difference("acknowledged_elsewhere", "a", 8, topic_id=7),
     "a: 8 messages acknowledged in a topic that is gone or was made anew since (it had id 7)"),
    (Difference("exported_elsewhere", "a", 0, topic_id=7), "a: the data set is of a topic that was made anew since (it had id 7)")])
def test_a_difference_is_a_sentence(one: Difference, said: str) -> None:
    assert said == sentence(one)


def test_the_json_says_of_each_column_whether_it_is_equal() -> None:
    """By topic and ten minutes, and by topic; differences with their meaning."""
    body = to_json(made(NOT_EXPORTED, Difference("acknowledged_elsewhere", "gone", 8, topic_id=7)))
    assert {"topic": "a", "period_us": PERIOD, "stored": 1_204, "acknowledged": 1_204, "consumed": {"g": 1_204}, "exported": 1_203, "is_equal": False,
            "equal": {"acknowledged": True, "exported": False, "consumed": {"g": True}}} == body["periods"][0]
    assert [("a", False, True), ("b", True, True), ("gone", False, False)] == [
        (one["topic"], one["is_equal"], one["equal"]["acknowledged"]) for one in body["topics"]]
    assert {"kind": "not_exported", "column": "exported", "meaning": "not exported", "topic": "a", "partition": 0, "start_offset": 3, "end_offset": 4,
            "period_us": PERIOD, "messages": 1, "group": None, "times": None, "topic_id": None} == body["differences"][0]
    assert {"acknowledged_elsewhere": {"ranges": 1, "messages": 8}, "not_exported": {"ranges": 1, "messages": 1}} == body["differences_by_kind"]
    assert {"equal": {"consumed": {"g": True}}} == {"equal": to_json(made(asked=Asked(groups=("g",))))["periods"][0]["equal"]}


def test_many_differences_are_counted_and_not_all_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary, "DIFFERENCES_TOLD_MAX", 30)
    many = made(*[replace(NOT_EXPORTED, start_offset=number, end_offset=number + 1) for number in range(40)])
    body = to_json(many)
    assert (30, 10, 40) == (len(body["differences"]), body["differences_left_out"], body["differences_by_kind"]["not_exported"]["ranges"])
    assert "… and 20 more, in reconcile.json" in to_text(many, Path("out"))


@pytest.mark.parametrize(("reconciliation", "told"), [
    (made(), ["<title>Reconciliation: equal</title>", 'class="result good"', "1 lines were not finished", "2023-11-14 22:20"]),
    (made(NOT_EXPORTED, not_judged=(NOT_JUDGED,)), ['class="result bad"', "a/0 offset 3 (2023-11-14 22:20)", "1,203 ≠", "&lt;away&gt;"]),
    (made(not_judged=(NOT_JUDGED,)), ['class="result unsure"', "&lt;away&gt;"]),
    (made(Difference("acknowledged_elsewhere", "gone", 8, topic_id=7)), ["gone"])])
def test_the_page_is_whole_and_says_everything(reconciliation: Reconciliation, told: list[str]) -> None:
    page = to_html(reconciliation)
    check_page(page)
    assert [] == [text for text in told if text not in page]


def test_something_must_be_asked_for() -> None:
    with pytest.raises(BadRequestError, match="give --receipts, --group or --export"):
        Asked()


def test_every_kind_has_a_meaning_of_its_own() -> None:
    assert len(KINDS) == len({kind.meaning for kind in KINDS.values()})
