"""spark-submit load: files of lines, NDJSON, CSV or Parquet into a topic, each row once, however often the load is killed and run again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from myqueue.errors import BadRequestError, ConflictError
from pipeline.cluster import Cluster, choose_topics, fetch_cluster
from pipeline.jobs import arguments
from pipeline.load.data_source import execute_in_spark
from pipeline.load.fields import Fields
from pipeline.load.planner import load_id, plan_splits
from pipeline.load.run import LoadPlan, Progress, load
from pipeline.load.splits import FORMATS
from pipeline.session import build_session
from pipeline.settings import PipelineSettings
from pipeline.sink.options import WriteOptions

SPLIT_BYTES = 16 << 20
WAVES_PER_CORE = 2  # splits a core between two notes of progress


def main(argv: Sequence[str]) -> int:
    """Load the files. Gives the exit code."""
    parser = arguments.job_parser("load", __doc__ or "")
    parser.add_argument("files", nargs="+", metavar="FILE", help="a file, or for Parquet a folder, also an export's; each line or row is a message")
    parser.add_argument("--format", choices=FORMATS, help="of all files (default: by the ending .ndjson, .jsonl, .csv or .parquet, else lines)")
    parser.add_argument("--key-field", metavar="NAME", help="the field or column that is the message's key; lines are JSON objects then")
    parser.add_argument("--value-field", metavar="NAME", help="the field or column that is the message's value (default: the whole row)")
    parser.add_argument("--in-order", action="store_true",
                        help="one part of a file after the other: each partition has the messages in the order of the files, and it takes longer")
    settings, flags = arguments.parse(parser, argv)

    def work() -> int:
        cluster = fetch_cluster(settings.bootstrap, timeout_seconds=settings.request_timeout_seconds)
        fields = Fields(flags.key_field, flags.value_field)
        plan = plan_of(settings, cluster, flags.files, fields, flags.format)
        spark = build_session("myqueue load")
        try:
            began = time.monotonic()
            done = load(plan, Path(settings.out), lambda plan, splits: execute_in_spark(spark, plan, splits),
                        wave=1 if flags.in_order else WAVES_PER_CORE * spark.sparkContext.defaultParallelism, tell=teller(len(plan.splits)))
        finally:
            spark.stop()
        check_files(settings, cluster, plan, flags.files, flags.format)
        files = len({split.path for split in plan.splits})
        print(f"load complete: {done.messages} messages of {files} files in {settings.topics[0]}, "
              f"{sum(one.repeated for one in done.done.values())} of them were there already, {time.monotonic() - began:.1f} s")
        return 0

    return arguments.run("load", work)


def plan_of(settings: PipelineSettings, cluster: Cluster, files: Sequence[str], fields: Fields, format: str | None = None) -> LoadPlan:
    """What is to be loaded. Raises BadRequestError where the topic or a file is wrong."""
    if len(settings.topics) != 1:
        raise BadRequestError("--topics must name the one topic to load into")
    topic = settings.topics[0]
    topic_id, splits = choose_topics(cluster, settings.topics)[topic][0].topic_id, plan_splits(files, SPLIT_BYTES, fields, format)
    options = WriteOptions(settings.bootstrap, topic, request_timeout_seconds=max(1, round(settings.request_timeout_seconds)))
    return LoadPlan(load_id(cluster.cluster_id, topic_id, splits, fields), tuple(splits), options, fields)


def check_files(settings: PipelineSettings, cluster: Cluster, plan: LoadPlan, files: Sequence[str], format: str | None = None) -> None:
    """Raises ConflictError where the files are not what they were when the load was planned: what was loaded is neither."""
    if plan_of(settings, cluster, files, plan.fields, format).id != plan.id:
        raise ConflictError("a file was changed while it was loaded: the topic has rows of before and of after; load files that nobody writes to")


def teller(splits: int) -> Callable[[Progress], None]:
    """A line that is written over on a terminal; nothing elsewhere."""
    def tell(progress: Progress) -> None:
        if sys.stderr.isatty() and splits:
            share = len(progress.done) / splits
            end = "\n" if share == 1 else ""
            print(f"\r[{'#' * round(30 * share):30}] {100 * share:3.0f} %  {progress.messages} messages", end=end, file=sys.stderr)

    return tell


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
