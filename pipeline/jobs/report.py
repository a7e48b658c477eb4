"""spark-submit report: traffic, sizes, lag and the keys that occur most, by topic and hour, as a page, Parquet and JSON."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from myqueue.errors import BadRequestError
from myqueue.protocol.names import parse_integer, parse_time
from pipeline.cluster import choose_topics, fetch_cluster
from pipeline.jobs import arguments
from pipeline.report.figures import Window
from pipeline.report.folder import check_free
from pipeline.report.run import report_cluster
from pipeline.report.summary import to_text
from pipeline.session import build_session

TOP, TOP_MAX = 10, 1000


def main(argv: Sequence[str]) -> int:
    """Write the report. Gives the exit code: 1 where counts differ from the cut, 2 where not all readers could be asked."""
    parser = arguments.job_parser("report", __doc__ or "")
    parser.add_argument("--top", type=_checked(lambda text: parse_integer(text, name="--top", minimum=1, maximum=TOP_MAX)), default=TOP, metavar="N",
                        help=f"so many keys of each topic (default: {TOP})")
    parser.add_argument("--since", type=_checked(parse_time), metavar="TIME",
                        help="only what was appended at this time or later: microseconds since 1970, or as 2026-03-01T12:00:00Z")
    parser.add_argument("--until", type=_checked(parse_time), metavar="TIME", help="only what was appended before this time")
    settings, flags = arguments.parse(parser, argv)

    def work() -> int:
        window = Window(flags.since, flags.until)
        check_free(Path(settings.out))
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


def _checked(parse: Callable[[str], int]) -> Callable[[str], int]:
    """A parser as argparse wants it: its refusal is the sentence that is shown."""
    def checked(text: str) -> int:
        try:
            return parse(text)
        except BadRequestError as error:
            raise argparse.ArgumentTypeError(error.message) from None

    return checked


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
