"""PURE: the report as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby

from .. import pages
from .figures import KeyCount, Period, Report, TopicTraffic
from .shown import hour_text, key_text, time_text
from .summary import result_line, window_text

TOPICS_WITH_KEYS_MAX = 50
OTHERS = "other topics"
_LOOKS = {"complete": pages.GOOD, "differs": pages.BAD, "incomplete": pages.UNSURE}
_BAR = 160
_REST_IN = "report.json"


def to_html(report: Report) -> str:
    """The whole page."""
    cluster = report.cut.cluster_id
    parts = [f"<h1>Report of cluster {escape(cluster)}</h1>",
             f"<p>{escape(report.at)}, {escape(window_text(report.window))}; times are the brokers' append times, in UTC</p>",
             pages.result(_LOOKS[report.result], result_line(report)),
             *_list("Counts that differ from the cut", report.traffic.differences),
             *_list("Not asked", [f"{one.what}: {one.why}" for one in report.readers.not_asked]),
             *_topics(report.traffic.topics), *_charts(report), *_keys(report), *_readers(report)]
    return pages.page(f"Report: {report.result}", parts)


def _list(title: str, sentences: Sequence[str]) -> list[str]:
    return [f"<h2>{title}</h2>", pages.table(("what",), [(sentence,) for sentence in sentences], rest_in=_REST_IN)] if sentences else []


def _topics(topics: Sequence[TopicTraffic]) -> list[str]:
    if not topics:
        return ["<p>There are no topics.</p>"]
    rows = [(one.topic, f"{one.partitions:,}", f"{one.messages:,}", pages.bytes_text(one.bytes), pages.bytes_text(one.largest_bytes),
             f"{one.without_key:,}", time_text(one.first_us), time_text(one.last_us)) for one in topics]
    head = ("topic", "partitions", "messages", "bytes", "largest message", "without key", "first message", "last message")
    return ["<h2>Topics</h2>", pages.table(head, rows, numbers=range(1, 8), rest_in=_REST_IN)]


def _charts(report: Report) -> list[str]:
    periods, hours = report.traffic.periods, report.traffic.period_hours
    if not periods:
        return ["<h2>Traffic</h2>", "<p>No message was appended.</p>"] if report.traffic.topics else []
    numbers = range(min(one.number for one in periods), max(one.number for one in periods) + 1)
    labels = [hour_text(number * hours) for number in numbers]
    span = "hour" if hours == 1 else f"{hours} hours" if hours < 48 else f"{hours // 24} days"
    messages, sizes = (_series(report, numbers, which) for which in ("messages", "bytes"))
    return [f"<h2>Traffic per {span}</h2>", pages.legend(messages),
            pages.columns(f"messages per {span}", labels, messages, "{:,}".format),
            pages.columns(f"bytes per {span}, keys and values", labels, sizes, pages.bytes_text), _by_period(numbers, hours, periods)]


def _series(report: Report, numbers: range, which: str) -> list[pages.Series]:
    """The topics in the order of their messages, and the others last: so the colours of both charts are the same."""
    totals = {topic.topic: topic.messages for topic in report.traffic.topics}
    names = sorted({one.topic for one in report.traffic.periods}, key=lambda topic: (topic is None, -totals.get(topic or "", 0), topic or ""))
    values = {(one.topic, one.number): getattr(one, which) for one in report.traffic.periods}
    return [pages.Series(OTHERS if name is None else name, tuple(values.get((name, number), 0) for number in numbers)) for name in names]


def _by_period(numbers: range, hours: int, periods: Sequence[Period]) -> str:
    totals = {number: [0, 0] for number in numbers}
    for one in periods:
        totals[one.number][0] += one.messages
        totals[one.number][1] += one.bytes
    rows = [(hour_text(number * hours), f"{messages:,}", pages.bytes_text(size)) for number, (messages, size) in totals.items() if messages]
    table = pages.table(("from", "messages", "bytes"), rows, numbers=(1, 2), rest_in="the data set traffic")
    return f"<details><summary>The same as a table</summary>{table}</details>"


def _keys(report: Report) -> list[str]:
    totals = {topic.topic: topic.messages for topic in report.traffic.topics}
    by_topic = [(topic, list(keys)) for topic, keys in groupby(report.traffic.keys, key=lambda one: one.topic)]
    parts = [f"<h3>{escape(topic)}</h3>{_key_table(keys, totals[topic])}" for topic, keys in by_topic[:TOPICS_WITH_KEYS_MAX]]
    if len(by_topic) > TOPICS_WITH_KEYS_MAX:
        parts.append(f"<p>and {len(by_topic) - TOPICS_WITH_KEYS_MAX:,} topics more, all in the data set top_keys</p>")
    return ["<h2>Keys that occur most</h2>", *parts] if parts else []


def _key_table(keys: Sequence[KeyCount], messages: int) -> str:
    rows = [(f"<code>{escape(key_text(one.beginning, one.length))}</code>", f"{one.messages:,}", f"{100 * one.messages / max(1, messages):.1f} %",
             pages.bar(one.messages, messages, _BAR), pages.bytes_text(one.bytes)) for one in keys]
    return pages.table(("key", "messages", "share", "", "bytes"), rows, numbers=(1, 2, 4), markup=(0, 3), rest_in="the data set top_keys")


def _readers(report: Report) -> list[str]:
    lines = report.readers.by_topic()
    if not lines:
        return []
    most = max(line.lag for line in lines)
    rows = [(f"{line.kind} {line.name}", line.topic, f"{line.partitions:,}", f"{line.lag:,}", pages.bar(line.lag, most, _BAR),
             f"{line.farthest}" if line.lag else "") for line in lines]
    head = ("reader", "topic", "partitions", "lag", "", "farthest partition")
    more = f"<p>{report.readers.left_out:,} consumers more were heard of longer ago; they were not asked.</p>" if report.readers.left_out else ""
    return ["<h2>Readers</h2>", "<p>Messages of the cut that a group or consumer has not committed, whatever the times above.</p>",
            pages.table(head, rows, numbers=(2, 3, 5), markup=(4,), rest_in=_REST_IN) + more]
