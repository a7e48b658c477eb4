"""A user's streaming job in a process of its own, to be killed: a topic into Parquet files and into another topic, each message once.

``python -m tests.support.stream_job --bootstrap HOST:PORT --topic FROM --to TO --folder DIR [--rest]``; with ``--rest`` it ends when it has all
that is there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pipeline.session import build_session

REST_SECONDS = 300


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--bootstrap", "--topic", "--to", "--folder"):
        parser.add_argument(name, required=True)
    parser.add_argument("--rest", action="store_true")
    given = parser.parse_args()
    spark, folder = build_session("stream job"), Path(given.folder)
    messages = (spark.readStream.format("myqueue").option("myqueue.bootstrap.servers", given.bootstrap).option("subscribe", given.topic)
                .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "20000").load())
    files = messages.select("partition", "offset", "key", "value").writeStream.option("path", str(folder / "files")).format("parquet")
    copy = (messages.select("key", "value").writeStream.format("myqueue").option("myqueue.bootstrap.servers", given.bootstrap)
            .option("topic", given.to))
    trigger = {"availableNow": True} if given.rest else {"processingTime": "500 milliseconds"}
    queries = [writer.option("checkpointLocation", str(folder / name)).trigger(**trigger).start()
               for name, writer in (("files-checkpoint", files), ("copy-checkpoint", copy))]
    print("streams run", flush=True)
    for query in queries:
        ended = query.awaitTermination(REST_SECONDS if given.rest else None)
        assert ended or not given.rest, query.status
    spark.stop()


if __name__ == "__main__":
    main()
