"""spark-submit report: traffic, sizes, lag and the keys that occur most, by topic and hour, as a page, Parquet and JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from myqueue.protocol.names import parse_integer
from pipeline.cluster import choose_topics, fetch_cluster
from pipeline.jobs import arguments
from pipeline.report.figures import Window
from pipeline.report.folder import REPORT
from pipeline.report.run import report_cluster
from pipeline.report.summary import to_text
from pipeline.session import build_session

TOP, TOP_MAX = 10, 1000


def main(argv: Sequence[str]) -> int:
    """Write the report. Gives the exit code: 1 where counts differ from the cut, 2 where not all readers could be asked."""
    parser = arguments.job_parser("report", __doc__ or "")
    parser.add_argument("--top", default=TOP, metavar="N",
                        type=arguments.checked(lambda text: parse_integer(text, name="--top", minimum=1, maximum=TOP_MAX)),
                        help=f"so many keys of each topic (default: {TOP})")
    arguments.add_window(parser)
    settings, flags = arguments.parse(parser, argv)

    def work() -> int:
        window = Window(flags.since, flags.until)
        REPORT.check_free(Path(settings.out))
        cluster = fetch_cluster(settings.bootstrap, timeout_seconds=settings.request_timeout_seconds)
        choose_topics(cluster, settings.topics)  # a wrong name ends here, before Spark has started
        spark = build_session("myqueue report")
        try:
            report = report_cluster(spark, cluster, settings, top=flags.top, window=window)
        finally:
            spark.stop()
        print(to_text(report, Path(settings.out)))
        return report.exit_code

    return arguments.run("report", work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
