"""What the jobs' pages share."""

from __future__ import annotations

import re

import pytest

from pipeline import pages
from tests.support.markup import check_page

ODD = '<i>"&\''


def test_a_page_escapes_what_is_text_and_leaves_what_is_markup() -> None:
    """Title, result, cells and captions; only the columns that are said to be markup are left as they are."""
    series = [pages.Series(ODD, (1, 0, 3)), pages.Series("b", (0, 0, 2))]
    page = pages.page(ODD, [pages.result(pages.GOOD, ODD), pages.table((ODD,), [(ODD, "<b>x</b>")], markup=(1,), rest_in="f"), pages.legend(series),
                            pages.columns(ODD, [ODD, "2", "3"], series, str)])
    check_page(page)
    assert "<i>" not in page and "<td><b>x</b></td>" in page


def test_a_column_is_as_high_as_its_values_and_says_them() -> None:
    """One on top of the other, to the scale of the axis, whose end is round; a column of nothing is not drawn."""
    chart = pages.columns("c", ["one", "two"], [pages.Series("a", (3, 0)), pages.Series("b", (1, 0))], "{} x".format)
    heights = {found[0]: float(found[1]) for found in re.findall(r'class="(c\d)".*?height="([\d.]+)"', chart)}
    assert pytest.approx(3, rel=0.01) == heights["c0"] / heights["c1"]
    assert "<title>one\na: 3 x\nb: 1 x</title>" in chart
    assert 1 == chart.count("<title>")
    assert [">0 x<", ">2 x<", ">4 x<"] == re.findall(r">\d+ x<", chart)


@pytest.mark.parametrize(("value", "end"), [(0, 1), (1, 1), (3, 3), (5, 6), (7, 8), (9, 10), (10, 10), (11, 20), (999, 1000), (4001, 6000)])
def test_an_axis_ends_at_a_round_number(value: int, end: int) -> None:
    assert end == pages.round_up(value)


@pytest.mark.parametrize(("count", "text"), [
    (0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_949, "999.9 kB"), (999_950, "1.0 MB"), (1_234_567, "1.2 MB"), (10**18, "1,000.0 PB")])
def test_bytes_are_shown_in_powers_of_a_thousand(count: int, text: str) -> None:
    assert text == pages.bytes_text(count)


def test_a_chart_of_nothing_is_a_chart() -> None:
    """No columns, no series."""
    check_page(pages.page("t", [pages.columns("c", [], [], str), pages.legend([])]))
