"""The documents say what the code has: every setting, every route, one start command; and they speak to users only."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from myqueue.protocol import routes
from myqueue.settings import flag_of

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ("broker", "manager", "load_balancer")
PACKAGES = ("myqueue", "db", *SERVICES, "pipeline")
VERBS = ("get", "post", "put", "patch", "delete", "route", "add_url_rule")


def documents_of(package: str) -> str:
    """README and DESIGN of a package, together."""
    return "\n".join(path.read_text() for path in (ROOT / package / "README.md", ROOT / package / "DESIGN.md") if path.exists())


def settings_of(package: str) -> type:
    module = importlib.import_module(f"{package}.settings")
    own = [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__]
    [found] = [value for value in own if hasattr(value, "ENV_PREFIX")]
    return found


def routes_in(path: Path) -> Iterator[tuple[int, str]]:
    """The paths that a file registers: literals, and constants of the routes module by their value."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in VERBS and node.args:
            yield from ((node.lineno, found) for found in _paths(node.args[0]))


def _paths(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("/"):
        yield node.value
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "routes":
        value = getattr(routes, node.attr)
        yield from [value] if value.startswith("/") else []  # not a header's name
    elif isinstance(node, ast.Call):  # a constant in Flask's spelling: rule(routes.RECORDS)
        for argument in node.args:
            yield from _paths(argument)


@pytest.mark.parametrize("package", SERVICES)
def test_every_setting_is_in_the_service_s_readme(package: str) -> None:
    """By its name in backticks, with its default where it has one in a table row."""
    text = (ROOT / package / "README.md").read_text()
    names = [field.name for field in dataclasses.fields(settings_of(package))]
    missing = [name for name in names if f"`{name}`" not in text and f"`{flag_of(name)}`" not in text]
    assert not missing, f"{package}/README.md does not name {', '.join(missing)}"


@pytest.mark.parametrize("package", SERVICES)
def test_no_readme_names_a_setting_that_is_not_there(package: str) -> None:
    names = {field.name for field in dataclasses.fields(settings_of(package))}
    rows = re.findall(r"^\| `(?:--)?([a-z_-]+)` \|", (ROOT / package / "README.md").read_text(), re.MULTILINE)
    assert {name.replace("-", "_") for name in rows} <= names


@pytest.mark.parametrize("package", SERVICES)
def test_each_service_s_readme_has_its_start_command(package: str) -> None:
    text = (ROOT / package / "README.md").read_text()
    commands = re.findall(rf"^(?:[A-Z_]+=\S+ )*python -m {package} .*$", text, re.MULTILINE)
    assert len(commands) == 1, f"one command, not {commands}"
    flags = {flag_of(field.name) for field in dataclasses.fields(settings_of(package))}
    assert set(re.findall(r"--[a-z-]+", commands[0])) <= flags


@pytest.mark.parametrize("package", SERVICES)
def test_every_route_is_in_the_package_s_documents(package: str) -> None:
    text = documents_of(package)
    files = sorted((ROOT / package / "api").glob("*.py"))
    missing = [f"{path.relative_to(ROOT)}:{line}: {route}" for path in files for line, route in routes_in(path)
               if not re.search(rf"(?<![\w/]){re.escape(route)}(?![\w/{{-])", text)]
    assert not missing, f"{package}/README.md and DESIGN.md do not name\n" + "\n".join(missing)


def test_the_balancer_s_own_paths_are_in_its_documents() -> None:
    assert [] == [path for path in sorted(routes.OF_EVERY_PROCESS) if f"`{path}`" not in documents_of("load_balancer")]


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_has_a_design(package: str) -> None:
    """With what it is for and what it does not do."""
    text = (ROOT / package / "DESIGN.md").read_text().lower()
    assert "purpose" in text
    assert "does not" in text or "not do" in text


@pytest.mark.parametrize("document", sorted(path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *ROOT.glob("*/*.md")]))
def test_files_that_a_document_names_are_there(document: str) -> None:
    """Links, and paths in backticks that begin with a folder of ours."""
    text, folder = (ROOT / document).read_text(), (ROOT / document).parent
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    paths = re.findall(rf"`((?:{'|'.join((*PACKAGES, 'tests', 'scripts'))})/[\w./-]+)`", text)
    missing = [name for name in links if name and not (folder / name).exists()] + [name for name in paths if not (ROOT / name).exists()]
    assert not missing, f"{document} names {missing}"


# What belongs to one machine or to the making of the thing, and to nobody who uses it. Spelt so that this file does not match itself.
FOREIGN = re.compile("|".join((
    r"(?<![\w.])/wor[k]/", r"/roo[t]/", r"/hom[e]/\w", r"\.\./share[d]", r"\ba-see[d]-", r"GROUNDWOR[K]", r"bug_report[s]\.md", r"\b[Ii]ssue #?\d",
    r"language mode[l]", r"[Ss]ubagen[t]", r"\bth[e] brief\b", r"TOD[O]\b", r"FIXM[E]\b", r"XX[X]\b",
)))


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, timeout=20)
    if listed.returncode == 0:
        return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    return [path for folder in (*PACKAGES, "tests", "scripts") for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix != ".pyc"]


def test_nothing_in_the_tree_speaks_of_one_machine_or_of_the_making() -> None:
    found = []
    for path in tracked_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        if path == Path(__file__) or path.suffix in (".log", ".tsv"):
            continue
        lines = [(number, line.strip()[:120]) for number, line in enumerate(text.splitlines(), 1) if FOREIGN.search(line)]
        found += [f"{path.relative_to(ROOT)}:{number}: {line}" for number, line in lines]
    assert not found, "\n" + "\n".join(found)
