"""The page about JDBC: its program, and PostgreSQL's driver where it is on this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DRIVERS = (os.environ.get("MYQUEUE_JDBC_DRIVER", ""), "/usr/share/java/postgresql.jar", *Path.home().glob(".m2/repository/org/postgresql/*/*/*.jar"))
DRIVER = next((str(path) for path in DRIVERS if path and Path(path).is_file()), None)


def program() -> str:
    """As it stands in the page; its last line counts."""
    [found] = re.findall(r"```python\n(.*?)```", (ROOT / "pipeline" / "JDBC.md").read_text(encoding="utf-8"), re.DOTALL)
    return found


def environment(topic: str, bootstrap: str, pgpass: Path, java_options: str) -> dict[str, str]:
    """What the program asks for, beside Java and the packages."""
    password = pgpass.read_text(encoding="utf-8").splitlines()[0].split(":")[4]
    return {"MYQUEUE_BOOTSTRAP": bootstrap, "TOPIC": topic, "PGPASSWORD": password,
            "PYSPARK_SUBMIT_ARGS": f"--master local[2] --driver-java-options '{java_options}' --jars {DRIVER} pyspark-shell"}
