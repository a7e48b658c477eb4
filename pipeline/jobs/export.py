"""spark-submit export: topics into one Parquet data set at one cut, counted again afterwards; with --audit the audit in the same run."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from myqueue.errors import BadRequestError
from pipeline.audit import report as reports
from pipeline.audit.findings import FINDINGS
from pipeline.cluster import Cluster, choose_topics, fetch_cluster
from pipeline.databases import limits_of
from pipeline.export.folder import DATASET_NAME
from pipeline.export.write import export_more, write_messages
from pipeline.files import write_text
from pipeline.jobs import arguments
from pipeline.jobs.audit import audit
from pipeline.session import build_session
from pipeline.settings import PipelineSettings
from pipeline.source.cuts import Cut, cut_of
from pipeline.source.planner import take_cut
from pipeline.transforms.counts import PartitionCount, collect_counts, differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUMMARY_NAME = "export.json"
SCHEMA_VERSION = 1


def main(argv: Sequence[str]) -> int:
    """Export the topics. Gives the exit code: the audit's, where one was asked for and found something; 1 where counts differ."""
    parser = arguments.job_parser("export", __doc__ or "")
    parser.add_argument("--audit", action="store_true", help="audit the cluster in the same Spark application; its exit code counts")
    parser.add_argument("--incremental", action="store_true",
                        help="add to the data set in --out what was committed since the last time; see manifest.json")
    settings, flags = arguments.parse(parser, argv)

    def work() -> int:
        dataset = Path(settings.out) / DATASET_NAME
        if flags.incremental and flags.audit:
            raise BadRequestError("--audit goes with a whole export only")
        if dataset.exists() and not flags.incremental:
            raise BadRequestError(f"{dataset} is there already: give --out a folder without an export")
        cluster = fetch_cluster(settings.bootstrap, timeout_seconds=settings.request_timeout_seconds)
        choose_topics(cluster, settings.topics)
        spark = build_session("myqueue export")
        try:
            if flags.incremental:
                return _export_more(spark, cluster, settings)
            return _audit_and_export(spark, cluster, settings) if flags.audit else export_all(spark, cluster, settings)
        finally:
            spark.stop()

    return arguments.run("export", work)


def _audit_and_export(spark: SparkSession, cluster: Cluster, settings: PipelineSettings) -> int:
    """One application: the audit's cut is the export's. Faulty logs are exported as far as they can be read, and the exit code says so."""
    report, logs = audit(spark, cluster, settings)
    print(reports.to_text(report))
    code = export_at(spark, settings, cut_of(cluster.cluster_id, logs.cut), fail_on_data_loss=not report.findings)
    return report.exit_code or code


def _export_more(spark: SparkSession, cluster: Cluster, settings: PipelineSettings) -> int:
    began = time.monotonic()
    added = export_more(spark, cluster, settings)
    for sentence in added.wrong:
        print(f"DIFFERS {sentence}")
    seconds = time.monotonic() - began
    if added.wrong:
        print(f"export differs in {len(added.wrong)} partitions: nothing was added, {seconds:.1f} s")
        return FINDINGS
    print(f"export complete: {added.messages} messages added to {Path(settings.out) / DATASET_NAME}, {added.manifest.cut.messages()} in all, "
          f"generation {added.manifest.number}, {seconds:.1f} s")
    return 0


def export_all(spark: SparkSession, cluster: Cluster, settings: PipelineSettings) -> int:
    """Take a cut of the wanted topics and export it."""
    partitions = [info for infos in choose_topics(cluster, settings.topics).values() for info in infos]
    return export_at(spark, settings, take_cut(cluster, partitions, limits_of(settings)), fail_on_data_loss=True)


def export_at(spark: SparkSession, settings: PipelineSettings, cut: Cut, *, fail_on_data_loss: bool) -> int:
    """Write the messages of a cut, count what was written, and say both. 0 only where they agree."""
    began, dataset = time.monotonic(), Path(settings.out) / DATASET_NAME
    counts: list[PartitionCount] = []
    if cut.messages():
        write_messages(spark, settings, cut, dataset, fail_on_data_loss)
        counts = collect_counts(spark.read.parquet(str(dataset)))
    wrong = differences(cut, counts)
    seconds = time.monotonic() - began
    write_text(json.dumps(summary(cut, counts, wrong, seconds), indent=2, sort_keys=True) + "\n", Path(settings.out) / SUMMARY_NAME)
    print("\n".join(text(cut, counts, wrong, dataset, seconds)))
    return FINDINGS if wrong else 0


def messages_by_topic(counts: Sequence[PartitionCount]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for count in counts:
        totals[count.name.topic] = totals.get(count.name.topic, 0) + count.messages
    return totals


def summary(cut: Cut, counts: Sequence[PartitionCount], wrong: Sequence[str], seconds: float) -> dict[str, Any]:
    """What export.json holds."""
    exported = messages_by_topic(counts)
    return {"schema_version": SCHEMA_VERSION, "at": datetime.now(UTC).isoformat(timespec="seconds"), "seconds": round(seconds, 3),
            "dataset": DATASET_NAME, "cut": json.loads(cut.to_json()), "differences": list(wrong), "messages": sum(exported.values()),
            "topics": [{"topic": topic, "messages": exported.get(topic, 0), "expected": expected}
                       for topic, expected in cut.messages_by_topic().items()]}


def text(cut: Cut, counts: Sequence[PartitionCount], wrong: Sequence[str], dataset: Path, seconds: float) -> list[str]:
    """The export for people; the last line says the result."""
    exported = messages_by_topic(counts)
    rows = [(topic, expected, exported.get(topic, 0)) for topic, expected in cut.messages_by_topic().items()]
    verdict = f"exported {sum(exported.values())} messages of {len(rows)} topics to {dataset} in {seconds:.1f} s"
    return [*reports.table(("topic", "committed", "exported"), rows), *(f"DIFFERS {sentence}" for sentence in wrong),
            f"export differs in {len(wrong)} partitions: {verdict}" if wrong else f"export complete: {verdict}"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
