"""Files of lines into splits, splits into lines, and a load that is cut off and run again."""

from __future__ import annotations

from pathlib import Path

import pytest

from myqueue.errors import BadRequestError, ConflictError, TooLargeError
from myqueue.protocol.types import PartitionInfo
from pipeline.cluster import Cluster
from pipeline.jobs.load import check_files, plan_of
from pipeline.load.run import Loaded, LoadPlan, Progress, load
from pipeline.load.splits import Split, key_of, lines_of, load_id, plan_splits
from pipeline.settings import PipelineSettings
from pipeline.sink.options import WriteOptions


@pytest.mark.parametrize("text", [b"", b"\n", b"one", b"a\n\nbb\r\nccc\n", b"x" * 50 + b"\n" + b"y\n" * 40 + b"end"])
@pytest.mark.parametrize("split_bytes", [1, 2, 3, 7, 1000])
def test_every_line_is_in_one_split(tmp_path: Path, text: bytes, split_bytes: int) -> None:
    """Byte for byte but for the line feeds, in order, wherever the borders fall."""
    path = tmp_path / "file"
    path.write_bytes(text)
    lines = [line for split in plan_splits([str(path)], split_bytes) for line in lines_of(split)]
    assert text.split(b"\n")[: len(text.split(b"\n")) - (text.endswith(b"\n") or not text)] == lines


def test_a_load_is_named_by_its_files_as_they_are(tmp_path: Path) -> None:
    """The same files give the same name; another cluster, topic (also one of the same name, made anew), key or content another."""
    path = tmp_path / "file"
    path.write_bytes(b"1\n2\n")
    splits = plan_splits([str(path)], 100)
    names = [load_id("c", 1, splits, None), load_id("c", 1, plan_splits([str(path)], 100), None), load_id("c", 2, splits, None),
             load_id("d", 1, splits, None), load_id("c", 1, splits, "k")]
    path.write_bytes(b"1\n2\n3\n")
    assert names[0] == names[1] and 5 == len({*names, load_id("c", 1, plan_splits([str(path)], 100), None)})


def test_a_file_that_is_written_to_during_the_load_is_noticed(tmp_path: Path) -> None:
    """Shorter: by the split that finds nothing. Otherwise: at the end, before the load is called complete."""
    path = tmp_path / "file"
    path.write_bytes(b"1\n2\n3\n")
    cluster = Cluster("c", 1, {}, (), (PartitionInfo("a", 7, 0, 1, 1, (1,), "ok"),))
    settings = PipelineSettings(out=str(tmp_path), topics=("a",), request_timeout_seconds=7)
    plan = plan_of(settings, cluster, [str(path)], None)
    assert 7 == plan.options.request_timeout_seconds
    check_files(settings, cluster, plan, [str(path)])
    path.write_bytes(b"1\n")
    with pytest.raises(ConflictError, match="became shorter while it was loaded: it ends at byte 2, not 6"):
        list(lines_of(plan.splits[0]))
    with pytest.raises(ConflictError, match="a file was changed while it was loaded"):
        check_files(settings, cluster, plan, [str(path)])
    with pytest.raises(BadRequestError, match="no such topic: b"):
        plan_of(PipelineSettings(out=str(tmp_path), topics=("b",)), cluster, [str(path)], None)


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
        plan_splits([str(tmp_path)], 10)


def test_keys_come_from_a_field() -> None:
    """Text as it is, other values as JSON, none where it is missing."""
    assert [b"x", b"7", b"[1]", None, None] == [key_of(line, "k") for line in (b'{"k":"x"}', b'{"k":7}', b'{"k": [1]}', b'{"k":null}', b"{}")]
    for line in (b"no", b"[1]", b""):
        with pytest.raises(BadRequestError, match="not a JSON object"):
            key_of(line, "k")


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
