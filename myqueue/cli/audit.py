"""``myqueue audit``: check everything that is stored, without Spark. The pipeline does it, in a process of its own."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from .connecting import add_bootstrap


def add_parser(groups: Any) -> None:
    text = "check the logs of all brokers and the metadata of all managers; exit codes 0 clean, 1 findings, 2 incomplete, 3 usage"
    parser = groups.add_parser("audit", help=text, description=text)
    parser.add_argument("--out", metavar="DIR", default="audit", help="folder for audit.json, audit.html and audit.prom (default: audit)")
    parser.add_argument("--topics", metavar="A,B", help="default: all topics")
    parser.add_argument("--data", metavar="DIR", default=os.environ.get("MYQUEUE_DATA") or ".myqueue",
                        help="the cluster's data folder, whose secrets/pgpass is used unless PGPASSFILE is set (MYQUEUE_DATA; default: .myqueue)")
    add_bootstrap(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """The audit's own exit code."""
    secret = Path(arguments.data) / "secrets" / "pgpass"
    environment = {**({"PGPASSFILE": str(secret.resolve())} if secret.is_file() else {}), **os.environ}
    command = [sys.executable, "-m", "pipeline.audit", "--bootstrap", arguments.bootstrap, "--out", arguments.out]
    return subprocess.run([*command, *(["--topics", arguments.topics] if arguments.topics else [])], env=environment, check=False).returncode
