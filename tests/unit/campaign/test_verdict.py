"""The verdict counts, measures and tells."""

from __future__ import annotations

import json

from tests.campaign.history import OK, UNKNOWN, Command, History, Oddity, Refused, Sent, Stored, Struck
from tests.campaign.verdict import Times, Wait, judge, recovery_seconds, summarise, told


def history() -> History:
    sent = [Sent("a", n, "t", 0, n, OK, float(n), n + 0.5) for n in range(10)]
    log = [Stored(n, f"a:{n}") for n in range(10)]
    sent += [Sent("b", 0, "t", None, None, UNKNOWN, 0.0, 1.0), Sent("b", 1, "t", 0, 10, OK, 8.0, 9.0)]
    return History(sent=sent, topics={"t"}, healed_at=9.0,
                   stored={"t/0": {"broker-1": [*log, Stored(10, "b:1")]}}, struck=[Struck("kill_broker", "broker-1", 2.2, 3.0, "slow")],
                   commands=[Command("c", "register", "", OK, 1, 0.0, 1.0)])


def test_a_clean_history_gives_a_clean_verdict() -> None:
    verdict = judge(history())
    assert verdict.is_clean
    assert 11 == verdict.acknowledged
    assert {"kill_broker": 1} == verdict.faults
    text = told(verdict, replay="scripts/faults --seed 1")
    assert text.endswith("faults: clean")
    assert "remark: kill_broker broker-1: slow" in text
    assert json.loads(json.dumps(verdict.to_json()))["clean"] is True


def test_a_violation_is_told_with_the_command_that_replays_it() -> None:
    bad = history()
    bad.oddities.append(Oddity("queue", "status 500", 1.0))
    verdict = judge(bad)
    text = told(verdict, replay="scripts/faults --seed 1")
    assert not verdict.is_clean
    assert "VIOLATION answers outside the contract: queue: status 500" in text
    assert text.endswith("replay: scripts/faults --seed 1")


def test_recovery_counts_only_what_was_sent_after_the_fault() -> None:
    """Producer a sent its next at 3.0 and had it at 3.5; producer b at 8.0, acknowledged at 9.0."""
    found = recovery_seconds(history())
    assert {"kill_broker": [1.3, 6.8]} == {kind: [round(one, 6) for one in times] for kind, times in found.items()}


def test_the_longest_waits_say_what_was_answered_meanwhile():
    """Producer a had nothing between 9.5 and 30.5; only its own calls in that time count."""
    seen = history()
    seen.sent.append(Sent("a", 10, "t", 0, 11, OK, 30.0, 30.5))
    seen.refused += [Refused("a", "POST /x", 503, "no majority", at) for at in (12.0, 13.0)]
    seen.refused += [Refused("a", "POST /x", 0, "ConnectTimeout", 14.0), Refused("a", "POST /x", 0, "before", 9.0)]
    seen.refused.append(Refused("b", "POST /x", 0, "another", 15.0))
    first, second, *_ = judge(seen).waits
    assert first == Wait("a", 9.5, 21.0, "2 times POST /x: 503 no majority")
    assert (second.worker, second.seconds) == ("a", 1.0)
    assert "a 21.0 s from 9.5 s on: 2 times POST /x: 503 no majority" in told(judge(seen), replay="")


def test_percentiles_are_of_the_nearest_rank() -> None:
    assert Times(100, 50.0, 95.0, 100.0) == summarise([float(n) for n in range(100, 0, -1)])
    assert Times(1, 2.0, 2.0, 2.0) == summarise([2.0])
    assert summarise([]) is None
