"""The supervisor's process: ``python -m myqueue.supervisor DATA``, started by ``Cluster.up`` with the plan on its standard input."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path

from ..clock import SystemClock
from ..errors import MyQueueError
from .folder import DataFolder
from .plan import NodeSpec
from .supervisor import Supervisor

# The nodes' own settings pass through; what names a database does not: each node gets its own.
NOT_FOR_NODES = ("DATABASE_URL", "MYQUEUE_DATA")


def main() -> int:
    """Read one line, {"attached", "nodes"}; with "attached", the end of the input ends the cluster. Secrets come this way and touch no disk."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s")
    folder = DataFolder(sys.argv[1])
    plan = json.loads(sys.stdin.buffer.readline())
    environment = {name: value for name, value in os.environ.items() if name not in NOT_FOR_NODES}
    supervisor = Supervisor([NodeSpec.from_json(body) for body in plan["nodes"]], folder, SystemClock(), environment=environment,
                            project=Path(__file__).resolve().parents[2], attached_to=sys.stdin.fileno() if plan["attached"] else None)
    try:
        return supervisor.run()
    except MyQueueError as error:
        logging.getLogger("myqueue.supervisor").error("%s", error.message)
        return 1


if __name__ == "__main__":
    sys.exit(main())
