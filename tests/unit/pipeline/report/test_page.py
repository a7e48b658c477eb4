"""The report as a page, as JSON and as a text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from myqueue.protocol.types import OffsetRange, PartitionId, TopicPartition
from pipeline.pages import COLOURS
from pipeline.report.figures import KeyCount, NotAsked, Period, Readers, Report, Standing, TopicTraffic, Traffic, Window, coloured
from pipeline.report.page import OTHERS, to_html
from pipeline.report.summary import to_json, to_text
from pipeline.source.cuts import CutPartition, cut_of
from tests.support.markup import check_page

CUT = cut_of("c", [CutPartition(TopicPartition("a", 0), PartitionId(1, 0), OffsetRange(0, 4))])
HOUR, FIRST = 472_222, 1_700_000_000_000_000
TOPICS = (TopicTraffic("a", 1, 4, 1, 30, 1270, 1000, FIRST, FIRST + 7_200_000_000), TopicTraffic("empty", 3))
PERIODS = (Period(HOUR, "a", 3, 300), Period(HOUR + 2, "a", 1, 1000))
KEYS = (KeyCount("a", b"<b>&", 4, 2, 20), KeyCount("a", b"\xff\x00", 2, 1, 9))
READERS = Readers((Standing("group", "g", "a", 0, 1, 4, 3), Standing("consumer", "7", "a", 0, None, 4, 4)))


def report(topics: tuple = TOPICS, periods: tuple = PERIODS, keys: tuple = KEYS, *, hours: int = 1, differences: tuple = (),
           readers: Readers = READERS, window: Window | None = None) -> Report:
    return Report("2026-01-01T00:00:00+00:00", 1.25, window or Window(), CUT, CUT, Traffic(topics, hours, periods, keys, differences), readers)


def test_the_page_is_whole_and_says_everything() -> None:
    """Keys are escaped and binary ones legible, an hour without messages has its place, an empty topic its row."""
    page = to_html(report())
    check_page(page)
    assert "&lt;b&gt;&amp;" in page and "<b>" not in page and "hex ff 00" in page
    told = ("report complete: 4 messages of 2 topics, 1.3 kB", "2023-11-14 22:13:20", "2023-11-15 00:13:20", "empty", "group g", "consumer 7",
            "50.0 %", "Traffic per hour", "<title>2023-11-14 22:00\na: 3</title>",
            "<title>2023-11-15 00:00\na: 1.0 kB</title>", 'class="result good"')
    assert [] == [text for text in told if text not in page]


@pytest.mark.parametrize(("made", "said"), [
    (report((), (), (), readers=Readers()), "There are no topics."), (report(TOPICS[1:], (), ()), "No message was appended."),
    (report(hours=48), "Traffic per 2 days"), (report(hours=6), "Traffic per 6 hours"),
    (report(window=Window(FIRST, FIRST)), "from 2023-11-14 22:13:20 until 2023-11-14 22:13:20"),
    (report(differences=("a/0: <gone>",)), "a/0: &lt;gone&gt;"),
    (report(readers=Readers((), (NotAsked("groups", "<away>"),), 9)), "groups: &lt;away&gt;")])
def test_whatever_there_is_the_page_is_whole(made: Report, said: str) -> None:
    """No topics, no messages, long periods, a window, differences, somebody who did not answer."""
    page = to_html(made)
    check_page(page)
    assert said in page


def test_topics_without_a_colour_of_their_own_share_one() -> None:
    """As many topics as there are colours have one each; of more the smaller ones are put together, and named last."""
    topics = tuple(TopicTraffic(f"t{number}", 1, 10 + number) for number in range(COLOURS + 1))
    assert COLOURS == len(coloured(topics[1:])) and [f"t{number}" for number in range(COLOURS, 1, -1)] == coloured(topics)
    page = to_html(report(topics, (Period(HOUR, None, 21, 2), *(Period(HOUR, topic, 10, 5) for topic in coloured(topics))), ()))
    check_page(page)
    assert f'<rect class="c{COLOURS - 1}" width="12" height="12" rx="2"/></svg>{OTHERS}</span></p>' in page


@pytest.mark.parametrize(("made", "code", "result", "last"), [
    (report(), 0, "complete", "report complete: 4 messages of 2 topics, 1.3 kB, out/report.html, 1.2 s"),
    (report(differences=("a/0: one is gone",), readers=Readers((), (NotAsked("groups", "away"),))), 1, "differs",
     "report differs in 1 partitions from the cut: 4 messages of 2 topics, 1.3 kB, out/report.html, 1.2 s"),
    (report(readers=Readers((), (NotAsked("groups", "away"),))), 2, "incomplete",
     "report incomplete: 1 things could not be asked: 4 messages of 2 topics, 1.3 kB, out/report.html, 1.2 s")])
def test_the_last_line_says_the_result(made: Report, code: int, result: str, last: str) -> None:
    """As do the exit code and the JSON, which holds the cut."""
    body = json.loads(json.dumps(to_json(made)))
    assert (code, last) == (made.exit_code, to_text(made, Path("out")).split("\n")[-1])
    assert (1, result, code, 4, 1300) == (body["schema_version"], body["result"], body["exit_code"], body["messages"], body["bytes"])
    assert (json.loads(CUT.to_json()), [1300, 0]) == (body["cut"], [topic["bytes"] for topic in body["topics"]])


def test_the_text_has_a_line_for_each_topic_and_reader() -> None:
    """And one for each thing that is wrong."""
    text = to_text(report(differences=("a/0: one is gone",), readers=Readers(READERS.standings, (NotAsked("groups", "away"),))), Path("out"))
    assert [["topic", "partitions", "messages", "bytes", "largest", "without", "key", "first", "last"],
            ["a", "1", "4", "1300", "1000", "1", "2023-11-14", "22:13:20", "2023-11-15", "00:13:20"], ["empty", "3", "0", "0", "0", "0"], [],
            ["reader", "topic", "partitions", "lag"], ["group", "g", "a", "1", "3"], ["consumer", "7", "a", "1", "4"], [],
            ["DIFFERS", "a/0:", "one", "is", "gone"], ["NOT", "ASKED", "groups:", "away"]] == [line.split() for line in text.split("\n")[:-1]]
