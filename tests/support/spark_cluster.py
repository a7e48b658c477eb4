"""A real standalone Spark cluster of this machine: a master and workers as processes of their own, from the pip package alone."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from .waiting import wait_until

START_SECONDS = 120
DAEMON_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def spark_home() -> Path:
    """Where pip put Spark."""
    return Path(find_spec("pyspark").submodule_search_locations[0])  # type: ignore[union-attr, index]


def environment_of_spark(java_home: str, **more: str) -> dict[str, str]:
    """For Spark's own commands: nothing that leads to this project's code."""
    own = ("PYTHONPATH", "SPARK_LOCAL_IP", "PYSPARK_PYTHON", "PGPASSFILE")
    return {**{name: value for name, value in os.environ.items() if name not in own}, "JAVA_HOME": java_home, "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": "127.0.0.1", **more}


@contextmanager
def spark_cluster(java_home: str, folder: Path, *, workers: int = 2, memory: str = "600m") -> Iterator[str]:
    """The master's URL; each worker has one core and its folder ``worker-N``. All are gone afterwards."""
    with ExitStack() as stack:
        log = stack.enter_context(_daemon(java_home, folder, "master", "master.Master", "--port", "0"))
        url = wait_until(lambda: re.search(r"Starting Spark master at (spark://\S+)", log.read_text()), timeout_seconds=START_SECONDS,
                         what="the master", interval_seconds=0.2)[1]
        logs = [stack.enter_context(_daemon(java_home, folder, f"worker-{number}", "worker.Worker", "--port", "0", "--cores", "1", "--memory", memory,
                                            "--work-dir", str(folder / f"worker-{number}"), url)) for number in range(workers)]
        for log in logs:
            wait_until(lambda log=log: "Successfully registered with master" in log.read_text(), timeout_seconds=START_SECONDS, what=log.name,
                       interval_seconds=0.2)
        yield url


@contextmanager
def _daemon(java_home: str, folder: Path, name: str, kind: str, *arguments: str) -> Iterator[Path]:
    log = folder / f"{name}.log"
    command = [spark_home() / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1", "--webui-port", "0", *arguments]
    environment = environment_of_spark(java_home, SPARK_DAEMON_MEMORY="256m", SPARK_DAEMON_JAVA_OPTS=DAEMON_OPTIONS)
    with log.open("w") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env=environment, cwd=folder)
        try:
            yield log
        finally:
            process.terminate()  # a worker ends its executors
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
