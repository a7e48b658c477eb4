"""spark-submit reconcile: whether what producers were told, what is stored, consumed and exported are the same, by topic and ten minutes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.cluster import fetch_cluster
from pipeline.jobs import arguments
from pipeline.reconcile.figures import Asked
from pipeline.reconcile.folder import RECONCILIATION
from pipeline.reconcile.run import gather, reconcile_cluster
from pipeline.reconcile.summary import to_text
from pipeline.report.figures import Window
from pipeline.session import build_session


def main(argv: Sequence[str]) -> int:
    """Write the reconciliation. Gives the exit code: 1 where something differs, 2 where something cannot be judged."""
    parser = arguments.job_parser("reconcile", __doc__ or "")
    parser.add_argument("--receipts", action="append", default=[], metavar="FILE_OR_GLOB",
                        help="receipts that producers kept (receipts= of MyProducer, --receipts of myqueue produce); may be given again")
    parser.add_argument("--group", action="append", default=[], metavar="NAME",
                        help="a consumer group whose committed offsets count as consumed, in the topics that it reads; may be given again")
    parser.add_argument("--export", metavar="DIR", help="a folder that export wrote; where it has a manifest, the files that this names")
    arguments.add_window(parser)
    settings, flags = arguments.parse(parser, argv)

    def work() -> int:
        asked = Asked(tuple(flags.receipts), tuple(dict.fromkeys(flags.group)), flags.export, Window(flags.since, flags.until))
        RECONCILIATION.check_free(Path(settings.out))
        gathered = gather(fetch_cluster(settings.bootstrap, timeout_seconds=settings.request_timeout_seconds), settings, asked)
        spark = build_session("myqueue reconcile")
        try:
            made = reconcile_cluster(spark, settings, gathered)
        finally:
            spark.stop()
        print(to_text(made, Path(settings.out)))
        return made.exit_code

    return arguments.run("reconcile", work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
