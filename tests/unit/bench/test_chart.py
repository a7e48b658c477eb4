"""Charts are whole SVG documents that can be read on light and on dark pages."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

from tests.bench.chart import bars, charts, lines
from tests.unit.bench.test_table import ROW

SVG = "{http://www.w3.org/2000/svg}"


def test_bars_are_as_long_as_their_values() -> None:
    root = ET.fromstring(bars("a <title>", "a second", [("MyQueue", 50.0), ("A & B", 100.0), ("nothing", 0.0)]))
    ours, other, least = [one for one in root.iter(f"{SVG}rect") if one.get("class") in ("o", "p")]
    assert ("o", "p") == (ours.get("class"), other.get("class"))
    assert 2.0 == round(float(other.get("width")) / float(ours.get("width")), 3)
    assert "1.0" == least.get("width")
    assert {"a <title>", "MyQueue", "A & B", "50 a second", "100 a second"} <= {one.text for one in root.iter(f"{SVG}text")}


def test_both_themes_have_their_colours_and_a_ground() -> None:
    for svg in (bars("t", "u", []), lines("t", "u", {"a": [1.0]})):
        root = ET.fromstring(svg)
        assert "prefers-color-scheme:dark" in root.find(f"{SVG}style").text
        assert "g" == root.find(f"{SVG}rect").get("class")


def test_lines_end_inside_the_card() -> None:
    root = ET.fromstring(lines("latency", "ms", {"p50": [1.0, 2.0, 4.0], "p99": [8.0]}))
    first, second = root.iter(f"{SVG}polyline")
    points = [tuple(map(float, point.split(","))) for point in first.get("points").split()]
    assert 3 == len(points) and 1 == len(second.get("points").split())
    assert points[0][1] > points[1][1] > points[2][1] > 0
    assert all(x <= float(root.get("width")) and y <= float(root.get("height")) for x, y in points)


def test_a_case_of_one_has_no_chart() -> None:
    assert {} == charts([ROW])
    assert ["produce-100-b-batches-of-1-000.svg"] == list(charts([ROW, replace(ROW, who="sketch")]))
