"""The fault campaign in its short form: a sound build is clean, and builds in which a rule is broken are found out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.campaign.__main__ import main
from tests.campaign.checkers.replicas import two_leaders
from tests.campaign.lab import Shape
from tests.campaign.run import Plan, run
from tests.campaign.schedule import WRITE_MANAGER, Fault
from tests.campaign.verdict import Verdict, judge, told

SEED = 34
RATE = 100  # messages a second: other tests run beside it, and messages have a campaign of their own length in scripts/faults
SMALL = 1
QUIET_WAL = ("wal_writer_delay=10s", "wal_writer_flush_after=1GB", "autovacuum=off")  # nothing but a commit takes the WAL to the disk
PATIENCE_SECONDS = 3.0  # in a broken build some stand still for ever


def judged(plan: Plan) -> Verdict:
    verdict = judge(run(plan, say=print))
    print(told(verdict, replay=f"scripts/faults --minutes {plan.seconds / 60:g} --seed {plan.seed} --pause {plan.pause_seconds:g}"))
    return verdict


@pytest.mark.timeout(400)
def test_a_short_campaign_is_clean(tmp_path: Path) -> None:
    """By the command, as people run it. The nodes' logs are in the test's folder, which stays for some runs."""
    report = tmp_path / "verdict.json"
    assert 0 == main(["--minutes", "2", "--seed", str(SEED), "--pause", "3", "--rate", str(RATE), "--json", str(report), "--logs",
                      str(tmp_path / "logs")])
    verdict = json.loads(report.read_text())
    assert verdict["clean"]
    assert verdict["acknowledged"] > 30 * RATE  # a quarter of the time
    assert len(verdict["faults"]) >= 20
    assert {"drain_broker", "add_broker"} <= verdict["faults"].keys()
    assert verdict["remarks"] == []


@pytest.mark.timeout(240)
def test_a_broker_that_acknowledges_before_the_disk_is_found_out() -> None:
    """Its PostgreSQL is killed under load: the messages of the last seconds, which nothing there has flushed, are not there."""
    kill = Fault("kill_postgres", 4.0, 1.0, ("postgres-broker-1",))
    verdict = judged(Plan(seconds=6.0, seed=SEED, faults=(kill,), patience_seconds=PATIENCE_SECONDS,
                          shape=Shape(SMALL, SMALL, "per-node", ("append_before_disk",), postgres_settings=QUIET_WAL)))
    assert verdict.findings["lost"].count


@pytest.mark.timeout(300)
def test_a_manager_that_forgets_its_vote_is_found_out() -> None:
    """The leader falls silent while the managers' links are slow: both others stand for election in one term, vote for each other, and both lead.

    There and back is well below the second after which a call is given up, so that both get their votes on a busy machine too. It was
    found in the third to the sixth pause.
    """
    slow = Fault("slow_managers", 1.0, 150.0, ("manager-1", "manager-2", "manager-3"), 0.25)
    pauses = [Fault("pause_write_manager", 3.0 + 6.0 * number, 4.0, (WRITE_MANAGER,)) for number in range(24)]
    verdict = judged(Plan(seconds=150.0, seed=SEED, faults=(slow, *pauses), shape=Shape(SMALL, 3, "shared", ("vote_not_stored",)),
                          patience_seconds=PATIENCE_SECONDS, enough=lambda history: any(two_leaders(history))))
    assert verdict.findings["two leaders of one term"].count
