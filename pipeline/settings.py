"""What a job can be told, declared once: flag beats environment beats default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from myqueue.settings import setting

MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class PipelineSettings:
    """The settings that the jobs share."""

    ENV_PREFIX: ClassVar[str] = "MYQUEUE_PIPELINE"

    out: str = setting(help="folder for what the job writes; made where it is missing")
    bootstrap: str = setting("127.0.0.1:9092", help="HOST:PORT of a load balancer or manager, several with commas", env="MYQUEUE_BOOTSTRAP")
    topics: tuple[str, ...] = setting((), help="topics with commas between them; without any, all topics")
    range_bytes: int = setting(64 * MEBIBYTE, minimum=MEBIBYTE, help="bytes of log that a Spark task reads or checks; not of an export")
    file_bytes: int = setting(128 * MEBIBYTE, minimum=MEBIBYTE, help="bytes of log in one file of an export, and what one of its tasks reads")
    tasks_per_broker: int = setting(2, minimum=1, maximum=64, help="audit tasks that one broker's database serves at a time")
    request_timeout_seconds: float = setting(10.0, minimum=0.1, help="limit on an HTTP call and on a connection to a database")
    statement_timeout_seconds: float = setting(120.0, minimum=1, help="limit on one SQL statement")
    min_partitions: int = setting(1, minimum=1, help="least number of Spark tasks of an export, a report or a reconciliation")
