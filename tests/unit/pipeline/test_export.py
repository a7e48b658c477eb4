"""An incremental export's manifest and its folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from myqueue.errors import BadRequestError, ConflictError, LogFaultError
from myqueue.protocol.types import OffsetRange, PartitionId, TopicPartition
from pipeline.export.folder import clear_left_overs, publish, read_manifest, write_manifest
from pipeline.export.manifest import Manifest, manifest_from_json, next_manifest, rest_of
from pipeline.source.cuts import Cut, CutPartition, cut_of

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def cut(*entries: tuple[TopicPartition, int, int, int], cluster: str = "c") -> Cut:
    return cut_of(cluster, (CutPartition(name, PartitionId(topic_id, name.partition), OffsetRange(start, end))
                            for name, topic_id, start, end in entries))


def test_what_is_left_lies_between_the_manifest_and_the_cut() -> None:
    """A new topic whole; retention below what was exported is no loss."""
    assert cut((A, 1, 10, 30), (B, 2, 0, 5)) == rest_of(cut((A, 1, 7, 30), (B, 2, 0, 5)), cut((A, 1, 0, 10)))
    assert cut((A, 1, 3, 9)) == rest_of(cut((A, 1, 3, 9)), Cut(""))


@pytest.mark.parametrize(("now", "error", "said"), [
    (cut((A, 1, 0, 30), cluster="d"), ConflictError, "the data set is of cluster c, this is d"),
    (cut((A, 8, 0, 30)), ConflictError, "topic a was made anew since it was exported: it had id 1, now 8"),
    (cut((A, 1, 0, 9)), LogFaultError, "was exported to offset 10, the log ends at 9"),
    (cut((A, 1, 11, 30)), LogFaultError, "was exported to offset 10, the log begins at 11")])
def test_a_data_set_that_does_not_fit_the_logs_is_refused(now: Cut, error: type, said: str) -> None:
    """Never other messages under old offsets, never a silent gap."""
    with pytest.raises(error, match=said):
        rest_of(now, cut((A, 1, 0, 10)))


def test_a_manifest_says_what_the_data_set_holds() -> None:
    """It goes through JSON; topics that are gone stay in it."""
    one = next_manifest(Manifest(0, Cut("")), cut((A, 1, 2, 10), (B, 2, 0, 5)), ["x", "w"])
    two = next_manifest(one, cut((A, 1, 7, 30)), ["y"])
    assert (2, cut((A, 1, 2, 30), (B, 2, 0, 5)), ("w", "x", "y")) == (two.number, two.cut, two.files)
    assert two == manifest_from_json(json.dumps(two.to_json()))
    for text in ("{", '{"schema_version": 9}', '{"schema_version": 2}'):
        with pytest.raises(BadRequestError):
            manifest_from_json(text)


def test_a_data_set_without_dates_is_not_added_to() -> None:
    """Its files have neither dates nor append times: another folder is asked for."""
    text = json.dumps({**next_manifest(Manifest(0, Cut("")), cut((A, 1, 2, 10)), ["x"]).to_json(), "schema_version": 1})
    with pytest.raises(BadRequestError, match=r"a manifest of version 1, this code reads version 2: .* export into another folder"):
        manifest_from_json(text)


DAY = Path("topic=a") / "date=2026-03-01"


def stage(folder: Path, name: str) -> None:
    (folder / "staging" / DAY).mkdir(parents=True, exist_ok=True)
    (folder / "staging" / DAY / name).write_bytes(b"")


def test_what_no_manifest_names_is_taken_away(tmp_path: Path) -> None:
    """An export that was cut off before its manifest leaves nothing that counts; one that was not is whole."""
    stage(tmp_path, "1.parquet")
    first = publish(tmp_path, read_manifest(tmp_path), cut((A, 1, 0, 10)))
    assert (first, ("messages/topic=a/date=2026-03-01/000001-1.parquet",)) == (read_manifest(tmp_path), first.files)
    stage(tmp_path, "2.parquet")
    publish(tmp_path, first, cut((A, 1, 0, 20)))
    write_manifest(tmp_path, first)  # as if the power had gone just before
    assert 1 == clear_left_overs(tmp_path, read_manifest(tmp_path))
    assert ["000001-1.parquet"] == [path.name for path in (tmp_path / "messages" / DAY).iterdir()]


class PowerCut(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("generation", [1, 2])
@pytest.mark.parametrize("survived", range(30))
def test_cut_off_at_any_step_the_next_run_has_each_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survived: int, generation: int) -> None:
    """Before or behind the manifest, at each thing that is done to the disk: what counts is the last manifest, whole, and nothing else is there."""
    first = read_manifest(tmp_path)
    if generation == 2:
        stage(tmp_path, "1.parquet")
        first = publish(tmp_path, first, cut((A, 1, 0, 10)))
    stage(tmp_path, "2.parquet")
    stage(tmp_path, "3.parquet")
    done = 0

    def step(do: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object, **options: object) -> object:
            nonlocal done
            if done == survived:
                raise PowerCut
            done += 1
            return do(*arguments, **options)
        return counted

    with monkeypatch.context() as context:
        for module, name in ((os, "replace"), (os, "fsync"), (shutil, "rmtree"), (Path, "replace"), (Path, "mkdir"), (Path, "write_text")):
            context.setattr(module, name, step(getattr(module, name)))
        with suppress(PowerCut):
            publish(tmp_path, first, cut((A, 1, 0, 20)))
    assert done < 29  # every step was one of the cases
    now = read_manifest(tmp_path)
    clear_left_overs(tmp_path, now)
    assert now.number in (generation - 1, generation)
    if now == first:
        stage(tmp_path, "2.parquet")
        stage(tmp_path, "3.parquet")
        now = publish(tmp_path, first, cut((A, 1, 0, 20)))
    names = [*["000001-1.parquet"][: generation - 1], *(f"{generation:06d}-{number}.parquet" for number in (2, 3))]
    assert tuple(f"messages/{DAY}/{name}" for name in names) == now.files
    assert set(now.files) == {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet")}


def test_a_lost_file_is_noticed(tmp_path: Path) -> None:
    """Before anything is added; so is a data set of another kind."""
    stage(tmp_path, "1.parquet")
    publish(tmp_path, read_manifest(tmp_path), cut((A, 1, 0, 10)))
    (tmp_path / "messages" / DAY / "000001-1.parquet").unlink()
    with pytest.raises(LogFaultError, match=r"1 files of the export are gone: messages/topic=a/date=2026-03-01/000001-1\.parquet"):
        read_manifest(tmp_path)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(ConflictError, match=r"no manifest\.json: it is another export's"):
        read_manifest(tmp_path)
