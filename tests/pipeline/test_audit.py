"""The audit on real databases: nothing on a sound cluster, and each kind of planted damage found where it is."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from myqueue.errors import UnreachableError
from myqueue.protocol.types import PartitionId, Record
from pipeline.audit import replicas
from pipeline.audit.data_source import execute_in_spark
from pipeline.audit.history import HISTORY_NAME, keep
from pipeline.audit.log_checks import StretchFacts
from pipeline.audit.logs import Execute, LogAudit, audit_logs, execute_here
from pipeline.audit.managers import ManagerAudit, audit_managers
from pipeline.audit.stretches import Stretch
from pipeline.cluster import DatabaseAddress
from pipeline.databases import Limits
from pipeline.jobs.audit import audit
from pipeline.settings import MEBIBYTE, PipelineSettings
from tests.pipeline.conftest import ROOT, FilledCluster, cluster_of
from tests.support.log_filler import execute, restored
from tests.support.metadata import LOG
from tests.support.postgres import PostgresForTests
from tests.support.wal_filler import fill_wal, take_snapshot

pytestmark = pytest.mark.timeout(240)  # the first test of the run also starts Spark, on a machine that may be busy
OTHER = "decode(repeat('11', 32), 'hex')"


def check(cluster: FilledCluster, run: Execute = execute_here, range_bytes: int = 1 << 16) -> LogAudit:
    return audit_logs(cluster.view(), cluster.view().partitions, Limits(), run, range_bytes=range_bytes, tasks_per_broker=2)


def myqueue_audit(cluster: FilledCluster, out: Path, *arguments: str) -> subprocess.CompletedProcess:
    """The command without Spark, in a process where pyspark and pyarrow cannot be imported."""
    blocked = "import sys; sys.modules.update(pyspark=None, pyarrow=None); from pipeline.audit.__main__ import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run([sys.executable, "-c", blocked, "--bootstrap", cluster.server.address, "--out", str(out),
                           "--range-bytes", str(MEBIBYTE), *arguments], capture_output=True, text=True, timeout=60, cwd=ROOT)


def places(audit: LogAudit | ManagerAudit) -> list[tuple]:
    return [(found.check, found.node, found.topic, found.partition, found.lsn) for found in audit.findings]


@pytest.fixture(scope="module")
def filled(postgres: PostgresForTests, reader: str) -> Iterator[FilledCluster]:
    """Topic ``a`` on broker 1: marker, lsn 1 to 7 in one segment (6 an offset commit), 8 to 12 in the next; ``b`` on broker 2."""
    with cluster_of(postgres, reader) as cluster:
        cluster.create_topic("a", topic_id=1, partitions=2)
        cluster.create_topic("b", topic_id=2, broker=1)
        filler, a = cluster.fillers[0], PartitionId(1, 0)
        for number in range(5):
            filler.append(a, [Record(b"%d" % number, b"k" if number % 2 else None)] * 10)
        filler.commit_offset(a, "#1", 5)
        filler.append(a, [Record(b"value", None, (("h", b"x"),), 5)] * 10)
        filler.roll(1)
        for number in range(4):
            filler.append(a, [Record(bytes([number]) * 20_000)] * 1)
        filler.append(a, [Record(b"tail")] * 10, committed=False)
        cluster.fillers[1].append(PartitionId(2, 0), [Record(b"b")] * 300)
        yield cluster


@pytest.fixture
def logs(filled: FilledCluster) -> Iterator[FilledCluster]:
    """The filled cluster, undamaged again after the test."""
    body = copy.deepcopy(filled.server.body)
    tables = ("log_segment_1", "partition_state", "partition_commit", "consumer_offset")
    with restored(filled.urls[0], (*tables, "log_segment_2")), restored(filled.urls[1], tables):
        yield filled
    filled.server.body = body


def test_sound_logs_give_no_finding_and_full_coverage(logs: FilledCluster) -> None:
    """Whatever the size of the stretches; the uncommitted tail is checked and not counted."""
    for range_bytes in (1 << 16, 1 << 30):
        audit = check(logs, range_bytes=range_bytes)
        assert ([], []) == (audit.findings, audit.skipped)
        assert [("a", 0, 64, 13), ("a", 1, 0, 1), ("b", 0, 300, 3)] == [(p.topic, p.partition, p.records, p.entries) for p in audit.partitions]


@pytest.mark.parametrize(("damage", "expected"), [
    ('UPDATE log_segment_1 SET "values"[3] = \'\\x31\' WHERE partition = 0 AND lsn = 3', ("chain_content", 3)),
    ("UPDATE log_segment_1 SET keys[1] = '\\x00' WHERE partition = 0 AND lsn = 2", ("chain_content", 2)),
    ("UPDATE log_segment_1 SET headers[1] = NULL WHERE partition = 0 AND lsn = 7", ("chain_content", 7)),
    ("UPDATE log_segment_1 SET timestamps[1] = 6 WHERE partition = 0 AND lsn = 7", ("chain_content", 7)),
    ("UPDATE log_segment_1 SET producer_id = 5 WHERE partition = 0 AND lsn = 4", ("chain_content", 4)),
    ("INSERT INTO consumer_offset VALUES (1, 0, '#9', 75, 0, 6, 1)", ("consumer_offset", 6)),
    (f"UPDATE log_segment_1 SET chain = {OTHER} WHERE partition = 0 AND lsn = 4", ("chain_value", 4)),
    (f"UPDATE log_segment_2 SET chain = {OTHER} WHERE partition = 0 AND lsn = 12", ("chain_content", 12)),
    ("DELETE FROM log_segment_1 WHERE partition = 0 AND lsn = 0", ("gap", 0)),
    ("DELETE FROM log_segment_1 WHERE partition = 0 AND lsn = 5", ("gap", 5)),
    ("DELETE FROM log_segment_1 WHERE partition = 0 AND lsn = 7", ("gap", 7)),
    ("DELETE FROM log_segment_2 WHERE partition = 0 AND lsn = 12", ("gap", 12)),
    ("UPDATE partition_commit SET commit_offset = commit_offset - 1 WHERE topic_id = 1 AND partition = 0", ("commit_position", 12)),
    ("UPDATE partition_commit SET commit_lsn = commit_lsn + 9 WHERE topic_id = 1 AND partition = 0", ("commit_position", 21)),
    ("UPDATE partition_state SET end_chain = start_chain WHERE topic_id = 1 AND partition = 0", ("head_row", 12)),
    ("UPDATE partition_state SET end_epoch = 7 WHERE topic_id = 1 AND partition = 0", ("head_row", 12)),
])
def test_planted_damage_is_found_once_and_located(logs: FilledCluster, damage: str, expected: tuple[str, int]) -> None:
    """The kind, the broker, the partition and the lsn, and nothing else; the same by wide stretches as by narrow ones, down to an entry each."""
    assert 1 == execute(logs.urls[0], damage)
    for range_bytes in (1, 1 << 14, 1 << 30):
        assert [(expected[0], "broker-1", "a", 0, expected[1])] == places(check(logs, range_bytes=range_bytes))


@pytest.mark.parametrize(("change", "back"), [
    ("ALTER TABLE log_segment_1 RENAME TO log_segment_away", "ALTER TABLE log_segment_away RENAME TO log_segment_1"),
    ("UPDATE log_segment_2 SET lsn = 13 WHERE partition = 0 AND lsn = 12", "UPDATE log_segment_2 SET lsn = 12 WHERE partition = 0 AND lsn = 13"),
], ids=["a segment is not there", "the uncommitted tail is another one"])
def test_a_log_that_is_changed_between_survey_and_look_is_looked_at_again(logs: FilledCluster, change: str, back: str) -> None:
    """Retention drops segments and a new leader replaces what was not committed: neither is a finding, or leaves the audit incomplete."""
    looks: list[set[str]] = []

    def look(tasks: Sequence[Sequence[Stretch]], limits: Limits) -> list[StretchFacts]:
        looks.append({stretch.topic for task in tasks for stretch in task})
        if len(looks) == 1:
            execute(logs.urls[0], change)
        try:
            return execute_here(tasks, limits)
        finally:
            if len(looks) == 1:
                execute(logs.urls[0], back)

    audit = check(logs, look)
    assert ([], []) == (audit.findings, audit.skipped)
    assert [("a", 0, 64, 13), ("a", 1, 0, 1), ("b", 0, 300, 3)] == sorted((p.topic, p.partition, p.records, p.entries) for p in audit.partitions)
    assert [{"a", "b"}, {"a"}] == looks  # the second time only what may have changed


def test_a_segment_that_stays_away_leaves_the_audit_incomplete(logs: FilledCluster) -> None:
    execute(logs.urls[0], "ALTER TABLE log_segment_1 RENAME TO log_segment_away")
    try:
        audit = check(logs)
    finally:
        execute(logs.urls[0], "ALTER TABLE log_segment_away RENAME TO log_segment_1")
    assert [] == audit.findings
    assert {"broker-1"} == {one.node for one in audit.skipped} and all("log_segment_1" in one.why for one in audit.skipped)


def test_spark_finds_what_the_plain_loop_finds(spark: SparkSession, logs: FilledCluster, tmp_path: Path) -> None:
    """Two executors of one plan; the report is written and the exit code is 1."""
    execute(logs.urls[0], "DELETE FROM log_segment_1 WHERE partition = 0 AND lsn IN (2, 5)")
    execute(logs.urls[1], 'UPDATE log_entry SET "values"[1] = \'\\x00\' WHERE topic_id = 2 AND lsn = 1')
    here = check(logs)
    there = check(logs, lambda tasks, limits: execute_in_spark(spark, tasks, limits))
    assert (sorted(here.findings), here.partitions) == (sorted(there.findings), there.partitions)
    report, _ = audit(spark, logs.view(), PipelineSettings(out=str(tmp_path), range_bytes=MEBIBYTE))
    written = json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))
    assert (1, ["gap", "gap", "chain_content"]) == (report.exit_code, [finding["check"] for finding in written["findings"]])
    assert all(finding["id"] in (tmp_path / "audit.html").read_text(encoding="utf-8") for finding in written["findings"])
    assert 'myqueue_audit_findings{check="gap"} 2' in (tmp_path / "audit.prom").read_text(encoding="utf-8")
    done = myqueue_audit(logs, tmp_path / "here")
    same = json.loads((tmp_path / "here" / "audit.json").read_text(encoding="utf-8"))
    assert (1, written["findings"], written["partitions"]) == (done.returncode, same["findings"], same["partitions"]), done.stderr


def test_the_history_tells_since_when_a_fault_is_there(spark: SparkSession, logs: FilledCluster, tmp_path: Path) -> None:
    """A row an audit; the README's statement over three of them."""
    settings, reports = PipelineSettings(out=str(tmp_path), range_bytes=MEBIBYTE), []
    for harm in (None, "DELETE FROM log_segment_1 WHERE partition = 0 AND lsn = 2", "DELETE FROM log_segment_1 WHERE partition = 0 AND lsn = 5"):
        if harm:
            execute(logs.urls[0], harm)
        report, _ = audit(spark, logs.view(), settings)
        reports.append(replace(report, at=f"2026-01-0{len(reports) + 1}T00:00:00+00:00"))
        keep(spark, reports[-1], tmp_path)
    kept = spark.read.parquet(str(tmp_path / HISTORY_NAME)).orderBy("at").collect()
    assert [("clean", 0), ("findings", 1), ("findings", 2)] == [(row["result"], len(row["findings"])) for row in kept]
    assert [364, 354, 344] == [row["messages"] for row in kept]
    assert [("a", 2), ("b", 1)] == [(topic["topic"], topic["partitions"]) for topic in kept[0]["topics"]]
    [statement] = re.findall(r"```sql\n(.*?)```", (ROOT / "pipeline/README.md").read_text(encoding="utf-8"), re.DOTALL)
    told = spark.sql(statement.replace("audit/history", str(tmp_path / HISTORY_NAME))).collect()
    assert {(2, 3), (3, 3)} == {(row["since"].day, row["last_seen"].day) for row in told}
    assert {finding.id for finding in reports[-1].findings} == {row["id"] for row in told}


def test_myqueue_audit_needs_no_spark(filled: FilledCluster, tmp_path: Path) -> None:
    """The same exit codes, each with one sentence where nothing was audited; the password by PGPASSFILE."""
    done = myqueue_audit(filled, tmp_path)
    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout.strip().split("\n")[-1].startswith("audit clean: 364 messages in 3 partitions")
    wrong = myqueue_audit(filled, tmp_path, "--topics", "nowhere")
    assert (3, "audit failed: no such topic: nowhere (there are: a, b)\n") == (wrong.returncode, wrong.stderr)


def test_a_database_that_cannot_be_reached_makes_the_audit_incomplete(spark: SparkSession, logs: FilledCluster, tmp_path: Path) -> None:
    """The rest is still checked; the exit code is 2, and the report says what was left out."""
    logs.server.body["brokers"][1]["database"]["port"] = 1
    report, _ = audit(spark, logs.view(), PipelineSettings(out=str(tmp_path)))
    assert (2, ["broker-2"], ["a", "a"]) == (report.exit_code, [s.node for s in report.skipped], [p.topic for p in report.partitions])


def test_a_login_without_its_password_is_said_without_it(logs: FilledCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """No password at all, and none in the message."""
    monkeypatch.setenv("PGPASSFILE", "/dev/null")
    audit = check(logs)
    assert ["broker-1", "broker-2"] == [skipped.node for skipped in audit.skipped]
    assert all("password" in skipped.why for skipped in audit.skipped)


# --- replicas against one another ---


def replicated(cluster: FilledCluster, name: str, topic_id: int, entries: dict[int, Sequence[bytes]], *, leader: int) -> None:
    """A topic of one partition whose replicas, by broker, hold these entries of one record each behind their marker."""
    for broker_id, values in entries.items():
        filler = cluster.fillers[broker_id - 1]
        filler.create_topic(topic_id, name)
        for value in values:
            filler.append(PartitionId(topic_id, 0), [Record(value)])
    cluster.server.body["partitions"].append({"topic": name, "topic_id": topic_id, "partition": 0, "epoch": 1, "leader": leader,
                                              "replicas": sorted(entries), "status": "ACTIVE"})


def test_replicas_that_differ_are_found_where_they_part(postgres: PostgresForTests, reader: str) -> None:
    """Each in itself without fault. What most have is right, of two what the leader has; what one lacks, or has not committed, is no difference."""
    whole = [b"%d" % number for number in range(9)]
    other = [*whole[:5], b"other", *whole[6:]]
    with cluster_of(postgres, reader, brokers=3) as cluster:
        replicated(cluster, "same", 1, {1: whole, 2: whole, 3: whole[:4]}, leader=1)
        replicated(cluster, "odd", 2, {1: other, 2: whole, 3: whole}, leader=1)
        replicated(cluster, "pair", 3, {1: whole, 2: [b"first", *whole[1:]]}, leader=2)
        replicated(cluster, "last", 4, {2: whole, 3: [*whole[:8], b"tail"]}, leader=3)
        replicated(cluster, "ahead", 5, {1: whole[:5], 2: other, 3: whole[:5]}, leader=2)
        replicated(cluster, "broken", 6, {1: whole, 2: whole}, leader=1)
        replicated(cluster, "trimmed", 7, {1: whole, 2: other}, leader=1)
        assert 1 == execute(cluster.urls[1], f"UPDATE log_entry SET chain = {OTHER} WHERE topic_id = 6 AND lsn = 9")
        for url in cluster.urls[:2]:  # both begin behind what differs, with the chain that each has there
            execute(url, "UPDATE partition_state s SET start_lsn = 8, start_offset = 7, start_epoch = 1, start_chain = e.chain "
                         "FROM log_entry e WHERE s.topic_id = 7 AND e.topic_id = 7 AND e.lsn = 7")
        audit = check(cluster)
        differing = [one for one in audit.findings if one.check == "replica_divergence"]
        assert [("broker-1", "odd", 6, 5, 9, "from here on it is not what broker-2 has"),
                ("broker-1", "pair", 1, 0, 9, "from here on it is not what broker-2 has, which leads"),
                ("broker-2", "last", 9, 8, 9, "from here on it is not what broker-3 has, which leads"),
                ("broker-2", "trimmed", 8, 7, 9, "from here on it is not what broker-1 has, which leads")] == sorted(
            (one.node, one.topic, one.lsn, one.start_offset, one.end_offset, one.detail) for one in differing)
        assert [("broker-2", "broken")] == [(one.node, one.topic) for one in audit.findings if one not in differing]
        assert [] == audit.skipped


@pytest.mark.parametrize(("failing", "found", "skipped"), [(range(1, 2), 1, []), (range(1, 100), 0, ["broker-2"]), (range(1, 99, 2), 0, ["brokers"])],
                         ids=["once", "from then on", "whenever it is asked for entries"])
def test_a_database_that_does_not_answer_while_replicas_are_compared_is_said_and_ends_nothing(
        postgres: PostgresForTests, reader: str, monkeypatch: pytest.MonkeyPatch, failing: range, found: int, skipped: list[str]) -> None:
    """Its spans could be read, its entries not: it is looked at again."""
    with cluster_of(postgres, reader) as cluster:
        replicated(cluster, "pair", 1, {1: [b"1"], 2: [b"2"]}, leader=1)
        view, calls, snapshot = cluster.view(), iter(range(1_000)), replicas.Databases.snapshot

        def sometimes(databases: replicas.Databases, address: DatabaseAddress) -> object:
            if address == view.brokers[2] and next(calls) in failing:
                raise UnreachableError("it does not answer")
            return snapshot(databases, address)

        monkeypatch.setattr(replicas.Databases, "snapshot", sometimes)
        audit = check(cluster)
        assert (found, skipped) == (len(audit.findings), [one.node for one in audit.skipped])


# --- managers ---


@pytest.fixture(scope="module")
def filled_managers(postgres: PostgresForTests, reader: str) -> Iterator[FilledCluster]:
    """Three managers that applied the same log of commands."""
    with cluster_of(postgres, reader, brokers=0, managers=3) as cluster:
        for url in cluster.urls:
            fill_wal(url, LOG)
        yield cluster


@pytest.fixture
def managers(filled_managers: FilledCluster) -> Iterator[FilledCluster]:
    """The filled managers, undamaged again after the test."""
    with restored(filled_managers.urls[1], ("topic", "partition", "producer", "consumer", "id_counter", "wal")):
        yield filled_managers


def test_sound_managers_give_no_finding(managers: FilledCluster) -> None:
    """Their folds are their tables, and their digests are one."""
    audit = audit_managers(managers.view().managers, Limits())
    assert ([], []) == (audit.findings, audit.skipped)
    assert (3, 1) == (len(audit.managers), len({manager.digest for manager in audit.managers}))
    assert {len(LOG)} == {manager.applied_index for manager in audit.managers}


@pytest.mark.parametrize(("damage", "expected"), [
    ("UPDATE topic SET config = '{\"x\": 1}' WHERE name = 'logs'", ("wal_fold", 58)),
    ("UPDATE partition SET leader = 2 WHERE topic_id = 4 AND partition = 0", ("wal_fold", 25)),
    ("UPDATE partition SET wanted = NULL WHERE topic_id = 5 AND partition = 2", ("wal_fold", 112)),
    ("DELETE FROM consumer", ("wal_fold", 15)),
    ("UPDATE id_counter SET last_id = last_id + 1 WHERE kind = 'topic'", ("wal_fold", 113)),
    ("DELETE FROM wal WHERE index = 12", ("wal_gap", 12)),
    ("UPDATE wal SET command = jsonb_set(command, '{host}', '\"evil\"') WHERE index = 5", ("wal_chain", 5)),
    (f"UPDATE wal SET chain = {OTHER} WHERE index = 9", ("wal_chain", 9)),
])
def test_planted_damage_of_a_manager_is_found_once_and_located(managers: FilledCluster, damage: str, expected: tuple[str, int]) -> None:
    """The kind, the manager and the index, and nothing else."""
    assert 1 <= execute(managers.urls[1], damage)
    assert [(expected[0], "manager-2", "", -1, expected[1])] == places(audit_managers(managers.view().managers, Limits()))


@pytest.fixture(scope="module")
def filled_compacted(postgres: PostgresForTests, reader: str) -> Iterator[FilledCluster]:
    """Three managers whose WALs begin behind snapshots, at two different indexes."""
    with cluster_of(postgres, reader, brokers=0, managers=3) as cluster:
        for url, parts in zip(cluster.urls, (COMPACTED, COMPACTED, COMPACTED[1:]), strict=True):
            for first, end in zip((0, *parts), (*parts, len(LOG)), strict=True):
                fill_wal(url, LOG[first:end])
                if end < len(LOG):
                    take_snapshot(url)
        yield cluster


COMPACTED = (10, 16, 22)  # where snapshots are taken: the WAL begins at the second of them


@pytest.fixture
def compacted(filled_compacted: FilledCluster) -> Iterator[FilledCluster]:
    """The compacted managers, undamaged again after the test."""
    with restored(filled_compacted.urls[1], ("topic", "partition", "producer", "consumer", "wal", "snapshot")):
        yield filled_compacted


def test_sound_managers_behind_snapshots_give_no_finding(compacted: FilledCluster) -> None:
    """Snapshot and WAL fold to the tables, nothing is left out, and the digests are one."""
    audit = audit_managers(compacted.view().managers, Limits())
    assert ([], []) == (audit.findings, audit.skipped)
    assert (3, 1) == (len(audit.managers), len({manager.digest for manager in audit.managers}))
    assert all(execute(url, "SELECT 1 FROM wal WHERE index <= 16") == 0 for url in compacted.urls)


@pytest.mark.parametrize(("damage", "expected"), [
    ("UPDATE snapshot SET state = replace(state, 'logs', 'lags') WHERE index = 16", ("snapshot_digest", 16)),
    ("UPDATE snapshot SET state = replace(state, 'logs', 'lags'), digest = sha256(convert_to(replace(state, 'logs', 'lags'), 'UTF8')) "
     "WHERE index = 22", ("snapshot_fold", 22)),
    ("DELETE FROM snapshot WHERE index = 16", ("snapshot_missing", 16)),
    ("DELETE FROM wal WHERE index = 17", ("wal_gap", 17)),
    ("UPDATE partition SET leader = 2 WHERE topic_id = 4 AND partition = 0", ("wal_fold", 25)),
    ("DELETE FROM consumer", ("wal_fold", -1)),
    ("UPDATE topic SET config = '{\"x\": 1}' WHERE name = 'logs'", ("wal_fold", 58)),
    ("UPDATE topic SET config = '{\"x\": 1}' WHERE name = 'new'", ("wal_fold", 25)),
])
def test_planted_damage_behind_snapshots_is_found_once_and_located(compacted: FilledCluster, damage: str, expected: tuple[str, int]) -> None:
    """The kind, the manager and the index, and nothing else."""
    assert 1 <= execute(compacted.urls[1], damage)
    assert [(expected[0], "manager-2", "", -1, expected[1])] == places(audit_managers(compacted.view().managers, Limits()))
