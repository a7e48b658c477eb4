"""Files into splits, splits into messages, and a load that is cut off and run again."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from myqueue.errors import BadRequestError, ConflictError, TooLargeError
from myqueue.protocol.types import OffsetRange, PartitionId, PartitionInfo, Record, TopicPartition
from pipeline.cluster import Cluster
from pipeline.export.folder import publish, read_manifest
from pipeline.jobs.load import check_files, plan_of
from pipeline.load.csv_rows import ROW_BYTES_MAX
from pipeline.load.fields import ROW, Fields, json_of, ndjson_record
from pipeline.load.lines import lines_of
from pipeline.load.planner import load_id, parquet_files, plan_splits
from pipeline.load.run import READERS, Loaded, LoadPlan, Progress, load, rows_of
from pipeline.load.splits import CSV, LINES, NDJSON, PARQUET, Split
from pipeline.settings import PipelineSettings
from pipeline.sink.options import WriteOptions
from pipeline.source.cuts import CutPartition, cut_of


@pytest.mark.parametrize("text", [b"", b"\n", b"one", b"a\n\nbb\r\nccc\n", b"x" * 50 + b"\n" + b"y\n" * 40 + b"end"])
@pytest.mark.parametrize("split_bytes", [1, 2, 3, 7, 1000])
def test_every_line_is_in_one_split(tmp_path: Path, text: bytes, split_bytes: int) -> None:
    """Byte for byte but for the line feeds, in order, wherever the borders fall."""
    path = tmp_path / "file"
    path.write_bytes(text)
    lines = [line for split in plan_splits([str(path)], split_bytes, ROW) for _, line in lines_of(split)]
    assert text.split(b"\n")[: len(text.split(b"\n")) - (text.endswith(b"\n") or not text)] == lines


def test_a_load_is_named_by_its_files_as_they_are(tmp_path: Path) -> None:
    """The same files give the same name; another cluster, topic (also one made anew), field, format or content another."""
    path = tmp_path / "file"
    path.write_bytes(b"1\n2\n")
    splits = plan_splits([str(path)], 100, ROW)
    names = [load_id("c", 1, splits, ROW), load_id("c", 1, plan_splits([str(path)], 100, ROW), ROW), load_id("c", 2, splits, ROW),
             load_id("d", 1, splits, ROW), load_id("c", 1, splits, Fields("k")), load_id("c", 1, splits, Fields(value="k")),
             load_id("c", 1, plan_splits([str(path)], 100, ROW, CSV), ROW)]
    path.write_bytes(b"1\n2\n3\n")
    assert names[0] == names[1] and 7 == len({*names, load_id("c", 1, plan_splits([str(path)], 100, ROW), ROW)})


def test_a_file_that_is_written_to_during_the_load_is_noticed(tmp_path: Path) -> None:
    """Shorter: by the split that finds nothing. Otherwise: at the end, before the load is called complete."""
    path = tmp_path / "file"
    path.write_bytes(b"1\n2\n3\n")
    cluster = Cluster("c", 1, {}, (), (PartitionInfo("a", 7, 0, 1, 1, (1,), "ok"),))
    settings = PipelineSettings(out=str(tmp_path), topics=("a",), request_timeout_seconds=7)
    plan = plan_of(settings, cluster, [str(path)], ROW)
    assert 7 == plan.options.request_timeout_seconds
    check_files(settings, cluster, plan, [str(path)])
    path.write_bytes(b"1\n")
    with pytest.raises(ConflictError, match="became shorter while it was loaded: it ends at byte 2, not 6"):
        list(lines_of(plan.splits[0]))
    with pytest.raises(ConflictError, match="a file was changed while it was loaded"):
        check_files(settings, cluster, plan, [str(path)])
    with pytest.raises(BadRequestError, match="no such topic: b"):
        plan_of(PipelineSettings(out=str(tmp_path), topics=("b",)), cluster, [str(path)], ROW)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"load_id": "x"}', '{"load_id": "x", "splits": [{"number": 1}]}'])
def test_notes_that_cannot_be_read_cost_work_and_stop_nothing(tmp_path: Path, text: str) -> None:
    """They only save work."""
    (tmp_path / "load.json").write_text(text)
    progress = Progress.read(tmp_path / "load.json", "x")
    assert {} == progress.done
    progress.note([Loaded(3, 10, 0)])
    assert {3: Loaded(3, 10, 0)} == Progress.read(tmp_path / "load.json", "x").done


def test_a_line_or_file_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    """Without reading a line of any length into memory."""
    path = tmp_path / "file"
    path.write_bytes(b"short\n" + bytes(3 << 20))
    with pytest.raises(TooLargeError, match="the line at byte 6 has more than 1048576 bytes"):
        list(lines_of(Split(0, str(path), 0, path.stat().st_size)))
    with pytest.raises(BadRequestError, match="is not a file"):
        plan_splits([str(tmp_path)], 10, ROW, LINES)
    with pytest.raises(BadRequestError, match="holds no Parquet file"):
        plan_splits([str(tmp_path)], 10, ROW)
    with pytest.raises(BadRequestError, match="lines have no fields, so no k: give --format ndjson"):
        plan_splits([str(path)], 10, Fields("k"), LINES)


def test_keys_and_values_come_from_fields() -> None:
    """Text as it is, other values as JSON, no key where it is missing; the line stays as it is."""
    lines = (b'{"k":"x"}', b'{"k":7}', b'{"k": [1]}', b'{"k":null}', b"{}")
    assert [(b"x", lines[0]), (b"7", lines[1]), (b"[1]", lines[2]), (None, lines[3]), (None, lines[4])] == [
        (record.key, record.value) for record in (ndjson_record(line, Fields("k")) for line in lines)]
    assert Record(b"x", b"7") == ndjson_record(b'{"k": 7, "v": "x"}', Fields("k", "v"))
    for line in (b"no", b"[1]", b"", b'"k"', b"[" * 100_000):
        with pytest.raises(BadRequestError, match="not a JSON object"):
            ndjson_record(line, Fields("k"))
    with pytest.raises(BadRequestError, match="v is missing or null: a message has a value, which may be empty"):
        ndjson_record(b'{"v": null}', Fields(None, "v"))


def test_what_is_done_is_not_sent_again(tmp_path: Path) -> None:
    """Waves of splits; after a failure the next run goes on behind the last wave that was noted; another load starts anew."""
    plan = LoadPlan("x", tuple(Split(number, "f", 0, 1) for number in range(7)), WriteOptions("h:1", "a"))
    sent: list[int] = []

    def execute(_plan: LoadPlan, splits: list[Split]) -> list[Loaded]:
        if 4 in (split.number for split in splits) and 4 not in sent[:-1] and len(sent) < 5:
            sent.append(4)
            raise TooLargeError("a line")
        sent.extend(split.number for split in splits)
        return [Loaded(split.number, 10, 0) for split in splits]

    with pytest.raises(TooLargeError):
        load(plan, tmp_path, execute, wave=2, tell=lambda progress: None)
    assert [0, 1, 2, 3, 4] == sent
    assert 70 == load(plan, tmp_path, execute, wave=2, tell=lambda progress: None).messages
    assert [4, 5, 6] == sent[5:]
    assert {} == Progress.read(tmp_path / "load.json", "another").done


def records(path: Path, fields: Fields = ROW, format: str | None = None, split_bytes: int = 1 << 20) -> list[Record]:
    """What a load makes of a file."""
    plan = LoadPlan("x", tuple(plan_splits([str(path)], split_bytes, fields, format)), WriteOptions("h:1", "a"), fields)
    return [row.record for split in plan.splits for rows in rows_of(plan, split) for row in rows]


@pytest.mark.parametrize(("name", "kind"), [
    ("a.csv", CSV), ("a.CSV", CSV), ("a.ndjson", NDJSON), ("a.jsonl", NDJSON), ("a.txt", LINES), ("a", LINES)])
def test_the_ending_says_the_format(tmp_path: Path, name: str, kind: str) -> None:
    """Unless it is said; a field makes objects of lines."""
    path = tmp_path / name
    path.write_bytes(b"k\n1\n")
    assert [kind] == [split.format for split in plan_splits([str(path)], 100, ROW)]
    assert [NDJSON if kind == LINES else kind] == [split.format for split in plan_splits([str(path)], 100, Fields("k"))]
    assert [LINES] == [split.format for split in plan_splits([str(path)], 100, ROW, LINES)]


def test_a_row_of_csv_is_an_object_of_texts(tmp_path: Path) -> None:
    """Line breaks, marks and commas inside quotation marks; one split whatever its size; empty lines are none, an empty key is none."""
    path = tmp_path / "file.csv"
    path.write_bytes("\ufeffname,text\r\n".encode() + b'"a","one\ntwo\r\nthree"\r\n\r\nb,"say ""x"", y"\n,\xc3\xa4\n"c",last')
    assert ['{"name":"a","text":"one\\ntwo\\r\\nthree"}', '{"name":"b","text":"say \\"x\\", y"}', '{"name":"","text":"ä"}',
            '{"name":"c","text":"last"}'] == [
        record.value.decode() for record in records(path, split_bytes=3)]
    assert [(b"a", b"one\ntwo\r\nthree"), (b"b", b'say "x", y'), (None, "ä".encode()), (b"c", b"last")] == [
        (record.key, record.value) for record in records(path, Fields("name", "text"))]
    path.write_bytes(b"")
    assert [] == records(path)
    path.write_bytes(b"only,a,header\n")
    assert [] == records(path)


@pytest.mark.parametrize(("text", "error", "said"), [
    (b"a,b\n1,2\n\n3\n", BadRequestError, r"file.csv: row 2 \(line 4\): 1 fields, the header has 2"),
    (b"a,b\n1,2\n1,\"2\n\n", BadRequestError, r"file.csv: row 2 \(line 4\): unexpected end of data"),
    (b'a,b\n"1"x,2\n', BadRequestError, r"file.csv: row 1 \(line 2\): ',' expected after '\"'"),
    (b"a,b\n1,\xff\n", BadRequestError, r"file.csv: row 1 \(line 1\): 'utf-8' codec can't decode byte 0xff"),
    (b"a,a\n1,2\n", BadRequestError, r"file.csv: the header \(line 1\): the header has more than one column a"),
    (b"x,y\n1,2\n", BadRequestError, r"file.csv: the header \(line 1\): there is no column a; there are x, y"),
    (b"a,b\n1,2\n3," + bytes(3 << 20), BadRequestError, r"file.csv: row 2 \(line 3\): field larger than field limit"),
    (b"a,b\n1,2\n3," + b"x,y\n" * (ROW_BYTES_MAX // 4), BadRequestError, r"row 2 \(line 3\): 3 fields"),
    (b"a,b\n1,2\n" + b"x," * (ROW_BYTES_MAX // 2) + b"\n", TooLargeError, r"row 2 \(line 2\): the row has more than 16777216 bytes"),
    (b"a,b\n1,2\n" + b"x" * (1 << 19) + b"," + b"y" * (1 << 20) + b"\n", TooLargeError, "file.csv: row 2: the record has 2097"),
    (b"a,b\n1,2\n" + b'"x\n",' * 4_000_000, TooLargeError, r"file.csv: row 2 \(line \d+\): the row has more than 16777216 bytes")])
def test_a_bad_row_of_csv_is_named(tmp_path: Path, text: bytes, error: type, said: str) -> None:
    """By its file, its number and its line; without reading a row of any length into memory."""
    path = tmp_path / "file.csv"
    path.write_bytes(text)
    with pytest.raises(error, match=said):
        records(path, Fields("a"))


def test_a_csv_file_that_became_shorter_is_noticed(tmp_path: Path) -> None:
    """At its end."""
    path = tmp_path / "file.csv"
    path.write_bytes(b"a\n1\n2\n")
    [split] = plan_splits([str(path)], 1, ROW)
    path.write_bytes(b"a\n1\n")
    with pytest.raises(ConflictError, match="became shorter while it was loaded: it ends at byte 4, not 6"):
        list(READERS[CSV](split, ROW)[0])


def test_a_line_that_is_no_object_is_named(tmp_path: Path) -> None:
    """By its first byte, in whatever split it is."""
    path = tmp_path / "file.ndjson"
    path.write_bytes(b'{"k": 1}\nno\n')
    with pytest.raises(BadRequestError, match=r"file.ndjson: the line at byte 9: not a JSON object: b'no'"):
        records(path, Fields("k"), split_bytes=5)


def write_parquet(path: Path, columns: dict[str, pa.Array], **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pa.table(columns), path, **options)
    return path


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TIMES = pa.timestamp("us", tz="UTC")


def test_an_export_s_columns_are_a_message(tmp_path: Path) -> None:
    """Key, value, headers and partition as they are, the time where it was the client's; a split is a row group; other columns are passed over."""
    path = write_parquet(tmp_path / "a.parquet", {
        "key": pa.array([b"k", None, b""]), "value": pa.array([b"\xff", b"", b"x"]), "partition": pa.array([0, 1, 2], pa.int32()),
        "offset": pa.array([7, 8, 9]), "timestamp": pa.array([5, 6, 7], TIMES), "timestampType": pa.array([0, 1, 0], pa.int32()),
        "headers": pa.array([[{"key": "h", "value": None}, {"key": "h", "value": b"x"}], None, []], HEADERS),
        "appendTime": pa.array([1, 2, 3], TIMES)},
        row_group_size=2)
    plan = LoadPlan("x", tuple(plan_splits([str(path)], 1, ROW)), WriteOptions("h:1", "a"))
    assert [(0, 1), (1, 2)] == [(split.start, split.end) for split in plan.splits]
    rows = [row for split in plan.splits for rows in rows_of(plan, split) for row in rows]
    assert [Record(b"\xff", b"k", (("h", None), ("h", b"x")), 5), Record(b"", None), Record(b"x", b"", (), 7)] == [row.record for row in rows]
    assert [0, 1, 2] == [row.partition for row in rows]
    assert [b"\xff", b"", b"x"] == [record.key for record in records(path, Fields("value"))]
    by_another = LoadPlan("x", plan.splits, plan.options, Fields("offset"))
    assert [(None, b"7"), (None, b"8"), (None, b"9")] == [
        (row.partition, row.record.key) for split in plan.splits for rows in rows_of(by_another, split) for row in rows]


def test_a_row_of_other_parquet_is_an_object(tmp_path: Path) -> None:
    """Everything that JSON has no word for, nanoseconds too; or only what is named."""
    path = write_parquet(tmp_path / "a.parquet", {
        "id": pa.array([1, 2]), "name": pa.array(["ä", None]), "raw": pa.array([b"\xff", b""]), "share": pa.array([0.5, float("nan")]),
        "price": pa.array([Decimal("1.10"), None]), "day": pa.array([date(2026, 3, 1), None]), "ok": pa.array([True, None]),
        "at": pa.array([1_600_000_000_000_000_001, None], pa.timestamp("ns", tz="UTC")), "tags": pa.array([["a", "b"], []]),
        "place": pa.array([{"x": 1}, None]), "value": pa.array([3, 4])})
    assert ('{"id":1,"name":"ä","raw":"/w==","share":0.5,"price":"1.10","day":"2026-03-01","ok":true,"at":"2020-09-13T12:26:40.000000001Z",'
            '"tags":["a","b"],"place":{"x":1},"value":3}') == records(path)[0].value.decode()
    assert ('{"id":2,"name":null,"raw":"","share":"nan","price":null,"day":null,"ok":null,"at":null,"tags":[],"place":null,"value":4}'
            ) == records(path)[1].value.decode()
    assert [(b"\xc3\xa4", b"1"), (None, b"2")] == [(record.key, record.value) for record in records(path, Fields("name", "id"))]
    assert [(b"1", b"1"), (b"2", b"2")] == [(record.key, record.value) for record in records(path, Fields("id", "id"))]
    assert b'{"at":"2026-03-01T00:00:00+00:00"}' == json_of({"at": datetime(2026, 3, 1, tzinfo=UTC)})


@pytest.mark.parametrize(("columns", "fields", "said"), [
    ({"value": pa.array([b"1", None])}, ROW, "a.parquet: row 2: the value is null"),
    ({"id": pa.array([1, None])}, Fields(None, "id"), "a.parquet: row 2: id is missing or null"),
    ({"id": pa.array([1, 2])}, Fields("user", "text"), "a.parquet: there is no column user, text; there are id"),
    ({"value": pa.array([b"1"]), "partition": pa.array(["x"])}, ROW, "the column partition is string, not what an export has: name the columns"),
    ({"value": pa.array([b"1"]), "headers": pa.array([["x"]])}, ROW, "the column headers is list<.*>, not what an export has: name the columns"),
    ({"value": pa.array([b"1"]), "headers": pa.array([[{"key": None, "value": b"x"}]], HEADERS)}, ROW, "a.parquet: row 1: a header has no name"),
    ({"t": pa.array([1], pa.time64("ns"))}, ROW, "a.parquet: row 1 or a little behind it: ")])
def test_a_bad_row_or_column_of_parquet_is_named(tmp_path: Path, columns: dict[str, pa.Array], fields: Fields, said: str) -> None:
    """By its file and its number, over row groups."""
    path = write_parquet(tmp_path / "a.parquet", columns, row_group_size=1)
    with pytest.raises(BadRequestError, match=said):
        records(path, fields)


def test_what_is_no_parquet_is_said(tmp_path: Path) -> None:
    """When the load is planned; a file that is exchanged during the load, by its splits."""
    path = tmp_path / "a.parquet"
    path.write_bytes(b"a,b\n")
    with pytest.raises(BadRequestError, match=r"a\.parquet cannot be read as Parquet: "):
        plan_splits([str(path)], 1, ROW)
    splits = plan_splits([str(write_parquet(path, {"id": pa.array([1, 2])}, row_group_size=1))], 1, ROW)
    write_parquet(path, {"id": pa.array([1])})
    with pytest.raises(ConflictError, match="was changed while it was loaded: it has 1 row groups, not 2"):
        READERS[PARQUET](splits[1], ROW)


def test_a_folder_of_parquet_is_its_files(tmp_path: Path) -> None:
    """Sorted, at any depth, without what is hidden or half written; of an export with a manifest what that names, also below a part of it."""
    for name in ("b/2.parquet", "b/1.parquet", "a/3.parquet", "_temporary/0/4.parquet", ".b.parquet", "c/.5.parquet"):
        write_parquet(tmp_path / "any" / name, {"id": pa.array([1])})
    (tmp_path / "any" / "notes.txt").write_text("no")
    found = [str(path.relative_to(tmp_path / "any")) for path in parquet_files(tmp_path / "any")]
    assert ["a/3.parquet", "b/1.parquet", "b/2.parquet"] == found
    assert found == [str(Path(split.path).relative_to(tmp_path / "any")) for split in plan_splits([str(tmp_path / "any")], 1, ROW)]
    export = tmp_path / "export"
    for topic in ("a", "b"):
        write_parquet(export / "staging" / f"topic={topic}" / "date=2026-03-01" / "1.parquet", {"id": pa.array([1])})
    name = TopicPartition("a", 0)
    publish(export, read_manifest(export), cut_of("c", [CutPartition(name, PartitionId(1, 0), OffsetRange(0, 1))]))
    write_parquet(export / "messages" / "topic=a" / "date=2026-03-01" / "left-over.parquet", {"id": pa.array([1])})
    write_parquet(export / "staging" / "topic=a" / "date=2026-03-01" / "2.parquet", {"id": pa.array([1])})
    files = [export / "messages" / f"topic={topic}" / "date=2026-03-01" / "000001-1.parquet" for topic in ("a", "b")]
    assert (files, files, files[:1]) == tuple(map(parquet_files, (export, export / "messages", export / "messages" / "topic=a")))
