"""A reconciliation on real databases: each kind of difference is planted alone, is found, and nothing else is said."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from myqueue.errors import BadRequestError
from myqueue.protocol.receipts import BatchReceipt, line_of
from myqueue.protocol.types import PartitionId, Record
from pipeline.databases import Limits
from pipeline.export.folder import write_manifest
from pipeline.export.manifest import Manifest
from pipeline.reconcile import run
from pipeline.reconcile.figures import Asked, Reconciliation
from pipeline.reconcile.run import gather, reconcile_cluster
from pipeline.report.figures import Window
from pipeline.schemas import PLACED
from pipeline.settings import PipelineSettings
from pipeline.source.cut_reader import cut_reader
from pipeline.source.planner import take_cut
from pipeline.transforms.reconcile import PERIOD_US
from tests.pipeline.conftest import FilledCluster, cluster_of
from tests.pipeline.test_export import run_spark_submit
from tests.support.log_filler import FIRST_TIME, execute, restored
from tests.support.markup import check_page
from tests.support.postgres import PostgresForTests, open_folder

pytestmark = pytest.mark.timeout(240)  # the first test of the run also starts Spark, on a machine that may be busy
FIRST = FIRST_TIME // PERIOD_US * PERIOD_US
LATER = FIRST + 2 * PERIOD_US
A0, A1, NUMBER = PartitionId(1, 0), PartitionId(1, 1), PartitionId(2, 0)
NAMES = {A0: ("a", 0), A1: ("a", 1), NUMBER: ("2024", 0)}
ALL = {"offsets": [{"topic": "a", "partition": 0, "offset": 30}, {"topic": "a", "partition": 1, "offset": 5},
                   {"topic": "2024", "partition": 0, "offset": 8}]}


@dataclass
class Filled:
    """A cluster, the receipts of everything in it, and a whole data set."""

    cluster: FilledCluster
    receipts: list[BatchReceipt] = field(default_factory=list)
    folder: Path = Path()

    def append(self, id_: PartitionId, count: int, *, broker: int = 0) -> None:
        filler = self.cluster.fillers[broker]
        time = filler._heads[id_]["time"]
        base = filler.append(id_, [Record(b"v", b"k")] * count)
        self.receipts.append(BatchReceipt(*NAMES[id_], count, base, time, id_.topic_id))


@pytest.fixture(scope="module")
def logs(postgres: PostgresForTests, reader: str, spark: SparkSession) -> Iterator[Filled]:
    """Topic ``a``: 20 and 10 messages, twenty minutes apart, and 5 in its other partition; ``2024`` on the other broker has 8; ``none`` is empty."""
    with cluster_of(postgres, reader) as cluster, open_folder() as folder:
        cluster.create_topic("a", topic_id=1, partitions=2)
        cluster.create_topic("2024", topic_id=2, broker=1)
        cluster.create_topic("none", topic_id=3)
        made = Filled(cluster, folder=folder)
        for count in (10, 10):
            made.append(A0, count)
        made.append(A1, 5)
        made.append(NUMBER, 8, broker=1)
        cluster.fillers[0].pass_time(A0, 2 * PERIOD_US // 1000)
        made.append(A0, 10)
        cluster.server.answers["/v1/groups/g/offsets"] = ALL
        write(stored(spark, made), folder / "export")
        yield made


@pytest.fixture
def filled(logs: Filled) -> Iterator[Filled]:
    """The same, and the same again after the test."""
    answers = logs.cluster.server.answers
    logs.cluster.server.answers = dict(answers)
    with restored(logs.cluster.urls[0], ("log_segment_1",)):
        yield logs
    logs.cluster.server.answers = answers


def stored(spark: SparkSession, of: Filled) -> DataFrame:
    """What an export would write, but for the contents."""
    settings = PipelineSettings(out="", bootstrap=of.cluster.server.address)
    cut = take_cut(of.cluster.view(), of.cluster.view().partitions, Limits())
    return cut_reader(spark, settings, cut, fail_on_data_loss=True).schema(PLACED).load()


def write(messages: DataFrame, folder: Path) -> None:
    messages.withColumn("date", F.date_format("appendTime", "yyyy-MM-dd")).write.partitionBy("topic", "date").parquet(str(folder / "messages"))


def reconcile(spark: SparkSession, of: Filled, out: Path, receipts: Sequence[BatchReceipt] | None = None, *, groups: tuple[str, ...] = (),
              export: Path | None = None, window: Window | None = None, topics: tuple[str, ...] = ()) -> Reconciliation:
    out.mkdir(exist_ok=True)
    files: tuple[str, ...] = ()
    if receipts is not None:
        (out / "receipts.ndjson").write_bytes(b"".join(map(line_of, receipts)))
        files = (str(out / "receipts.ndjson"),)
    settings = PipelineSettings(out=str(out), bootstrap=of.cluster.server.address, topics=topics)
    asked = Asked(files, groups, None if export is None else str(export), window or Window())
    return reconcile_cluster(spark, settings, gather(of.cluster.view(), settings, asked))


def found(made: Reconciliation) -> list[tuple]:
    return [tuple(value for value in asdict(one).values() if value is not None) for one in made.judged.differences]


def test_what_is_the_same_everywhere_is_reconciled(spark: SparkSession, logs: Filled, tmp_path: Path) -> None:
    """Receipts, a group and an export, by topic and ten minutes: exit code 0, and every number in Parquet, JSON and page.

    What one that was cut off has left in the staging does no harm, and none is written over another.
    """
    (tmp_path / "reconcile-staging" / "periods").mkdir(parents=True)
    made = reconcile(spark, logs, tmp_path, logs.receipts, groups=("g",), export=logs.folder / "export")
    assert ((), (), 0) == (made.judged.differences, made.judged.not_judged, made.exit_code)
    body = json.loads((tmp_path / "reconcile.json").read_text(encoding="utf-8"))
    assert [("2024", FIRST, 8, 8, 8, 8), ("a", FIRST, 25, 25, 25, 25), ("a", LATER, 10, 10, 10, 10)] == [
        (one["topic"], one["period_us"], one["stored"], one["acknowledged"], one["consumed"]["g"], one["exported"]) for one in body["periods"]]
    assert all(one["is_equal"] and one["equal"] == {"acknowledged": True, "consumed": {"g": True}, "exported": True} for one in body["periods"])
    assert ["2024", "a", "none"] == [one["topic"] for one in body["topics"]]
    assert (1, "equal", 0, 5, 43, []) == (body["schema_version"], body["result"], body["exit_code"], body["receipts"]["batches"],
                                          body["receipts"]["messages"], body["differences"])
    [file] = (tmp_path / "periods").glob("*.parquet")
    rows = pyarrow.parquet.read_table(file).to_pylist()
    names = ("topic", "partition", "stored", "first_offset", "last_offset", "stored_offset_sum", "acknowledged", "acknowledged_offset_sum",
             "consumed", "exported", "exported_offset_sum")
    assert [("2024", 0, 8, 0, 7, 28, 8, 28, [("g", 8)], 8, 28), ("a", 0, 20, 0, 19, 190, 20, 190, [("g", 20)], 20, 190),
            ("a", 0, 10, 20, 29, 245, 10, 245, [("g", 10)], 10, 245), ("a", 1, 5, 0, 4, 10, 5, 10, [("g", 5)], 5, 10)] == [
                tuple(row[name] for name in names) for row in rows]
    assert [FIRST, LATER] == [round(row["period"].timestamp() * 1_000_000) for row in rows[1:3]]
    check_page((tmp_path / "reconcile.html").read_text(encoding="utf-8"))
    assert {"reconcile.html", "reconcile.json", "periods", "receipts.ndjson", ".lock"} == {path.name for path in tmp_path.iterdir()}
    with pytest.raises(BadRequestError, match=r"reconcile\.json is there already: give --out a folder without a reconciliation"):
        reconcile(spark, logs, tmp_path, logs.receipts)


def changed(receipts: list[BatchReceipt], at: int, **changes: Any) -> list[BatchReceipt]:
    return [replace(one, **changes) if number == at else one for number, one in enumerate(receipts)]


def test_differences_of_receipts_are_named(spark: SparkSession, filled: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost behind the end and in a partition that is not there, twice, without a receipt, of another identity: exit code 1."""
    monkeypatch.setattr(run, "LOOK_INTERVAL_SECONDS", 0.0)
    planted = changed(changed(changed(filled.receipts, 0, base_offset=1), 3, topic_id=77), 4, record_count=13)
    made = reconcile(spark, filled, tmp_path, [*planted, BatchReceipt("a", 7, 2, 0, LATER, 1)])
    assert [("unacknowledged", "2024", 8, 0, 0, 8, FIRST), ("unacknowledged", "a", 1, 0, 0, 1, FIRST),
            ("acknowledged_twice", "a", 1, 0, 10, 11, FIRST, 2), ("lost", "a", 3, 0, 30, 33, LATER),
            ("lost", "a", 2, 7, 0, 2, LATER), ("acknowledged_elsewhere", "2024", 8, 77)] == found(made)
    assert ((), 1) == (made.judged.not_judged, made.exit_code)
    assert [("2024", FIRST, 8, 0), ("a", FIRST, 25, 25), ("a", LATER, 10, 15)] == [
        (line.topic, line.period_us, line.stored, line.acknowledged) for line in made.lines() if line.period_us is not None]
    page = (tmp_path / "reconcile.html").read_text(encoding="utf-8")
    check_page(page)
    assert "a/0 offsets 30 to 32 (2023-11-14 22:30)" in page


def test_messages_that_the_log_has_lost_are_named(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    """By their offsets, in the middle of a log and where nothing of a partition is left."""
    assert 1 == execute(filled.cluster.urls[0], "DELETE FROM log_segment_1 WHERE partition = 0 AND kind = 1 AND base_offset = 10")
    made = reconcile(spark, filled, tmp_path / "1", filled.receipts)
    assert ([("lost", "a", 10, 0, 10, 20, FIRST)], 1) == (found(made), made.exit_code)
    assert 1 == execute(filled.cluster.urls[0], "DELETE FROM log_segment_1 WHERE partition = 1 AND kind = 1")
    made = reconcile(spark, filled, tmp_path / "2", groups=("g",))
    assert [("missing", "a", 10, 0, 10, 20, FIRST), ("missing", "a", 5, 1, 0, 5)] == found(made)


def test_what_a_group_has_not_consumed_is_named(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    """Of the topics that it reads, also where it has committed nothing; one that reads none of them is not judged."""
    filled.cluster.server.answers["/v1/groups/late/offsets"] = {"offsets": [{"topic": "a", "partition": 0, "offset": 27}]}
    filled.cluster.server.answers["/v1/groups/idle/offsets"] = {"offsets": []}
    made = reconcile(spark, filled, tmp_path / "1", groups=("g", "late", "idle"))
    assert [("not_consumed", "a", 3, 0, 27, 30, LATER, "late"), ("not_consumed", "a", 5, 1, 0, 5, FIRST, "late")] == found(made)
    assert [{"g": 8}, {"g": 25, "late": 20}, {"g": 10, "late": 7}] == [line.consumed for line in made.lines()]
    assert ["group idle"] == [one.what for one in made.judged.not_judged]


def test_differences_of_an_export_are_named(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    """Not there, there twice, there and not in the log: exit code 1. One that lacks and one that is double do not hide each other."""
    all_ = stored(spark, filled)
    planted = (all_.where("NOT (topic = 'a' AND (partition = 0 AND offset IN (5, 6) OR partition = 1 AND offset = 4))")
               .unionAll(all_.where("topic = '2024' AND offset = 3 OR topic = 'a' AND partition = 1 AND offset = 3"))
               .unionAll(all_.where("topic = 'a' AND offset = 29").withColumn("offset", F.lit(30).cast("long"))))
    write(planted, tmp_path / "export")
    made = reconcile(spark, filled, tmp_path / "out", export=tmp_path / "export")
    assert [("exported_twice", "2024", 1, 0, 3, 4, FIRST, 2), ("not_exported", "a", 2, 0, 5, 7, FIRST), ("exported_only", "a", 1, 0, 30, 31, LATER),
            ("exported_twice", "a", 1, 1, 3, 4, FIRST, 2), ("not_exported", "a", 1, 1, 4, 5, FIRST)] == found(made)
    assert ((), 1) == (made.judged.not_judged, made.exit_code)


@pytest.mark.long
def test_only_the_files_of_the_manifest_count(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    """Others in the folder do not; nor does a topic of which the data set has an earlier identity."""
    cut = take_cut(filled.cluster.view(), filled.cluster.view().partitions, Limits())
    write(stored(spark, filled), tmp_path)
    files = tuple(str(path.relative_to(tmp_path)) for path in (tmp_path / "messages").rglob("*.parquet"))
    write_manifest(tmp_path, Manifest(1, cut, files))
    stored(spark, filled).withColumn("date", F.lit("x")).write.mode("append").partitionBy("topic", "date").parquet(str(tmp_path / "messages"))
    assert 0 == reconcile(spark, filled, tmp_path / "1", export=tmp_path).exit_code
    number = next(name for name in cut.partitions if name.topic == "2024")
    older = replace(cut.partitions[number], id=PartitionId(66, 0))
    write_manifest(tmp_path, Manifest(2, replace(cut, partitions={**cut.partitions, number: older}), files))
    made = reconcile(spark, filled, tmp_path / "2", export=tmp_path)
    assert [("not_exported", "2024", 8, 0, 0, 8, FIRST), ("exported_elsewhere", "2024", 0, 66)] == found(made)
    write_manifest(tmp_path, Manifest(3, replace(cut, cluster_id="c2"), files))
    with pytest.raises(BadRequestError, match="it is of cluster c2, this is c1"):
        reconcile(spark, filled, tmp_path / "3", export=tmp_path)


def test_a_data_set_without_append_times_is_refused(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    """In a sentence; so is a folder without a data set."""
    stored(spark, filled).drop("appendTime").write.partitionBy("topic").parquet(str(tmp_path / "messages"))
    with pytest.raises(BadRequestError, match=r"files have no column appendTime .*export anew into another folder"):
        reconcile(spark, filled, tmp_path / "1", export=tmp_path)
    with pytest.raises(BadRequestError, match="there is no data set messages"):
        reconcile(spark, filled, tmp_path / "2", export=tmp_path / "2")


@pytest.mark.long
def test_only_the_window_and_the_topics_are_compared(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    """What differs outside of them is not said; what differs inside is."""
    filled.cluster.server.answers["/v1/groups/late/offsets"] = {"offsets": [{"topic": "a", "partition": 0, "offset": 20}]}
    write(stored(spark, filled).where("offset <> 25"), tmp_path / "export")
    early = Window(FIRST, LATER)
    made = reconcile(spark, filled, tmp_path / "1", filled.receipts[:2], groups=("late",), export=tmp_path / "export", window=early, topics=("a",))
    assert [("unacknowledged", "a", 5, 1, 0, 5, FIRST), ("not_consumed", "a", 5, 1, 0, 5, FIRST, "late")] == found(made)
    made = reconcile(spark, filled, tmp_path / "2", filled.receipts[4:], export=tmp_path / "export", window=Window(LATER, None))
    assert [("not_exported", "a", 1, 0, 25, 26, LATER)] == found(made)
    assert [("a", LATER, 10, 10, 9)] == [(line.topic, line.period_us, line.stored, line.acknowledged, line.exported) for line in made.lines()]


def test_receipts_that_retention_has_overtaken_are_not_judged(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    """Exit code 2. What was exported before is no difference."""
    execute(filled.cluster.urls[0], "UPDATE partition_commit SET trim_offset = 10 WHERE topic_id = 1 AND partition = 0")
    try:
        made = reconcile(spark, filled, tmp_path, filled.receipts, export=filled.folder / "export")
        assert ([], 2, ["a/0: 10 messages acknowledged"]) == (found(made), made.exit_code, [one.what for one in made.judged.not_judged])
    finally:
        execute(filled.cluster.urls[0], "UPDATE partition_commit SET trim_offset = 0 WHERE topic_id = 1 AND partition = 0")


def test_a_cluster_without_topics_is_reconciled(spark: SparkSession, cluster: FilledCluster, tmp_path: Path) -> None:
    """With receipts of a topic that is gone."""
    assert [("acknowledged_elsewhere", "gone", 4, 9)] == found(reconcile(spark, Filled(cluster), tmp_path, [BatchReceipt("gone", 0, 4, 0, FIRST, 9)]))


@pytest.mark.long
def test_one_command_reconciles(filled: Filled, tmp_path: Path) -> None:
    """Quiet but for the table, whose last line says the result; a second one into the same folder is refused."""
    (tmp_path / "1.ndjson").write_bytes(b"".join(map(line_of, filled.receipts[:2])))
    (tmp_path / "2.ndjson").write_bytes(b"".join(map(line_of, filled.receipts[2:])))
    command = ("reconcile", "--bootstrap", filled.cluster.server.address, "--out", str(tmp_path / "out"), "--receipts", f"{tmp_path}/*.ndjson",
               "--group", "g", "--export", str(filled.folder / "export"))
    done = run_spark_submit(*command)
    assert (0, "") == (done.returncode, done.stderr), done.stdout
    assert done.stdout.strip().split("\n")[-1].startswith(
        "reconciled: acknowledged, consumed by g and exported equal what is stored; 43 messages of 3 topics stored, ")
    again = run_spark_submit(*command)
    assert (3, True) == (again.returncode, "reconcile.json is there already" in again.stdout + again.stderr)


@pytest.mark.parametrize(("arguments", "said"), [
    ([], "give --receipts, --group or --export"), (["--receipts", "/none/*"], "there is no such file"),
    (["--export", "/none"], "there is no data set"),
    (["--group", "nobody"], "no such group"), (["--group", "a/b"], "group name"), (["--since", "yesterday", "--group", "g"], "yesterday"),
    (["--topics", "nowhere", "--group", "g"], "nowhere")])
def test_a_wrong_argument_is_told_before_spark_starts(cluster: FilledCluster, tmp_path: Path, arguments: list[str], said: str,
                                                      capsys: pytest.CaptureFixture) -> None:
    """In a sentence, with exit code 3."""
    from pipeline.jobs.reconcile import main

    with pytest.raises(SystemExit) as ended:
        raise SystemExit(main(["--bootstrap", cluster.server.address, "--out", str(tmp_path / "out"), *arguments]))
    told = capsys.readouterr().err
    assert (3, 1) == (ended.value.code, told.count("\n"))
    assert said in told
