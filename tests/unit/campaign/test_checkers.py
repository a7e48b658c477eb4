"""Each checker finds the anomaly that is planted, names it, and finds nothing in a history that is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.campaign.checkers import CHECKERS
from tests.campaign.checkers.register import CREATE, CREATED, EXISTS, REGISTER, THERE_ALREADY, is_linearizable
from tests.campaign.history import (
    FAILED,
    OK,
    UNKNOWN,
    Command,
    Committed,
    Entry,
    History,
    Led,
    Missed,
    Oddity,
    Read,
    Resumed,
    Sent,
    Shared,
    Stored,
    Trimmed,
)


def good() -> History:
    """Two producers, a reader that resumed once, a dequeuer that lost an answer, two replicas, commands: nothing is wrong with it."""
    log = [Stored(0, "a:0"), Stored(1, "b:0"), Stored(2, "a:1"), Stored(3, "a:3")]
    entries = [Entry(0, 1, "m"), Entry(1, 1, "x"), Entry(2, 2, "y")]
    return History(
        sent=[Sent("a", 0, "t", 0, 0, OK, 1.0, 1.1), Sent("b", 0, "t", 0, 1, OK, 1.0, 9.0), Sent("a", 1, "t", 0, 2, OK, 2.0, 2.1),
              Sent("a", 2, "t", None, None, FAILED, 3.0, 3.1), Sent("a", 3, "t", None, None, UNKNOWN, 4.0, 4.1),
              Sent("a", 4, "t", 0, None, UNKNOWN, 5.0, 5.1), Sent("a", 5, "u", 0, 0, OK, 8.5, 8.6)],
        read=[Read("r", 0, "t", 0, 0, "a:0", 2.0), Read("r", 0, "t", 0, 1, "b:0", 2.0), Read("r", 1, "t", 0, 1, "b:0", 3.0),
              Read("r", 1, "t", 0, 2, "a:1", 3.0), Read("q", 0, "t", 0, 0, "a:0", 1.0), Read("q", 0, "t", 0, 2, "a:1", 1.0)],
        shared=[Shared("g", "m1", "t", 0, 0, "a:0", 2.0), Shared("g", "m1", "t", 0, 1, "b:0", 2.1), Shared("g", "m2", "t", 0, 1, "b:0", 5.0),
                Shared("g", "m2", "t", 0, 2, "a:1", 5.1), Shared("g", "m2", "t", 0, 3, "a:3", 5.2)],
        missed=[Missed("q", "t", 1.0)],
        committed=[Committed("g", "t", 0, 1, 3.0), Committed("g", "t", 0, 4, 6.0),
                   Committed("r", "t", 0, 1, 2.5), Committed("r", "t", 0, 2, 2.9)], resumed=[Resumed("r", 1, "t", 0, 1, 2.6)],
        commands=[Command("c", CREATE, "n", OK, CREATED, 1.0, 1.2), Command("d", CREATE, "n", OK, THERE_ALREADY, 1.1, 1.3),
                  Command("d", EXISTS, "n", OK, True, 1.4, 1.5), Command("c", CREATE, "m", UNKNOWN, None, 1.0, 3.0),
                  Command("c", REGISTER, "", OK, 1, 1.0, 1.2), Command("d", REGISTER, "", OK, 2, 1.1, 1.3),
                  Command("c", REGISTER, "", OK, 4, 2.0, 2.1)],
        led=[Led("managers", 1, "manager-1", 1.0), Led("managers", 2, "manager-2", 2.0), Led("managers", 2, "manager-2", 3.0),
             Led("t/0", 2, "broker-1", 2.0)],
        healed_at=8.0, ended_at=10.0, readers={"r", "q"}, finished={"r": 9.0, "q": 9.5},
        stored={"t/0": {"broker-1": log, "broker-2": log[:2]}, "u/0": {"broker-1": [Stored(0, "a:5")]}},
        entries={"t/0": {"broker-1": entries, "broker-2": entries[:2]}, "managers": {"manager-1": [Entry(5, 1, "z")]}}, topics={"n", "t"})


def trim(history: History, before: int, outcome: str, *left: Stored) -> None:
    """A trim, and what stands on one replica's disk after it."""
    history.trimmed.append(Trimmed("t", 0, before, outcome, 6.0, 6.1))
    history.stored["t/0"] = {"broker-1": list(left)} if left else {}


def test_what_was_trimmed_counts_as_its_readers_saw_it() -> None:
    """Also where it is not known whether it was done, and where one replica did it and another did not yet."""
    history = good()
    trim(history, 2, UNKNOWN, Stored(2, "a:1"), Stored(3, "a:3"))
    history.stored["t/0"]["broker-2"] = [Stored(0, "a:0"), Stored(1, "b:0")]
    assert {} == {name: found for name, checker in CHECKERS.items() if (found := list(checker(history)))}


def test_a_partition_that_was_trimmed_to_its_end_is_as_its_readers_saw_it() -> None:
    history = good()
    history.read.append(Read("r", 1, "t", 0, 3, "a:3", 4.0))
    trim(history, 4, OK)
    assert {} == {name: found for name, checker in CHECKERS.items() if (found := list(checker(history)))}
    del history.stored["t/0"]
    history.read.pop()
    assert list(CHECKERS["lost"](history)) == []
    history.sent.append(Sent("b", 1, "t", 0, 3, OK, 6.0, 6.1))
    assert "no such offset" in next(CHECKERS["lost"](history))


def test_a_reader_that_began_a_session_before_it_had_read_anything_begins_at_the_first_message() -> None:
    history = good()
    history.read += [Read("w", 1, "t", 0, 0, "a:0", 3.0), Read("w", 2, "t", 0, 1, "b:0", 4.0)]
    history.resumed.append(Resumed("w", 2, "t", 0, 1, 3.5))
    assert list(CHECKERS["skipped by a reader"](history)) == []


def test_nothing_is_found_in_a_history_that_is_right() -> None:
    assert {} == {name: found for name, checker in CHECKERS.items() if (found := list(checker(good())))}


@dataclass(frozen=True)
class Planted:
    """One anomaly: who must find it, how it is planted, and what the finding must say."""

    checker: str
    plant: Callable[[History], object]
    says: str


PLANTED = {
    "an acknowledged message is gone from the end": Planted(
        "lost", lambda h: h.sent.append(Sent("b", 1, "t", 0, 4, OK, 6.0, 6.1)), "no such offset"),
    "another one stands where a message was acknowledged": Planted(
        "lost", lambda h: h.stored["t/0"].update({"broker-1": [Stored(0, "a:0"), Stored(1, "a:9"), Stored(2, "a:1")]}), "where a:9 stands"),
    "a whole partition is gone": Planted("lost", lambda h: h.stored.pop("t/0"), "no such offset"),
    "a message is gone whose offset was not told": Planted("lost", lambda h: h.sent.append(Sent("b", 1, "t", 0, None, OK, 6.0, 6.1)), "not there"),
    "a message is gone whose partition was not told": Planted(
        "lost", lambda h: h.sent.append(Sent("b", 1, "t", None, None, OK, 6.0, 6.1)), "none of its partitions"),
    "a retry was stored again": Planted("duplicated", lambda h: h.stored["t/0"]["broker-1"].append(Stored(4, "b:0")), "t/0@1, t/0@4"),
    "a trimmed message is there again": Planted("duplicated", lambda h: trim(h, 1, OK, Stored(1, "b:0"), Stored(2, "a:0")), "t/0@0, t/0@2"),
    "a message was trimmed that nobody had read": Planted(
        "lost", lambda h: (trim(h, 3, OK, Stored(3, "a:3")), h.read.clear()), "b:0 was acknowledged"),
    "a trim took nothing away": Planted("trimmed wrongly", lambda h: trim(h, 3, OK, Stored(2, "a:1")), "shows t/0@2, and everything below 3"),
    "more is gone than was trimmed": Planted("trimmed wrongly", lambda h: trim(h, 1, UNKNOWN, Stored(2, "a:1")), "nothing of t/0 below 2"),
    "a message is in two partitions": Planted("duplicated", lambda h: h.stored.update({"t/1": {"broker-2": [Stored(0, "b:0")]}}), "t/1@0"),
    "a later message overtook": Planted(
        "reordered", lambda h: h.stored["t/0"].update({"broker-1": [Stored(0, "a:1"), Stored(1, "b:0"), Stored(2, "a:0")]}), "a:0 stands behind a:1"),
    "a reader saw another value": Planted("two values at one offset", lambda h: h.read.append(Read("r", 1, "t", 0, 3, "b:7", 4.0)), "b:7"),
    "a replica has another value": Planted(
        "two values at one offset", lambda h: h.stored["t/0"].update({"broker-2": [Stored(0, "a:0"), Stored(1, "a:1")]}), "t/0@1"),
    "a reader saw what was never sent": Planted("read but never written", lambda h: h.read.append(Read("r", 1, "t", 0, 3, "ghost", 4.0)), "ghost"),
    "a log holds what was sent to another topic": Planted(
        "read but never written", lambda h: h.stored["t/0"]["broker-1"].append(Stored(4, "a:44")), "a:44"),
    "what was refused is there": Planted("refused and yet stored", lambda h: h.stored["t/0"]["broker-1"].append(Stored(4, "a:2")), "a:2 was refused"),
    "a poll passes a message over": Planted("skipped by a reader", lambda h: h.read.append(Read("r", 1, "t", 0, 4, "a:3", 4.0)), "when 3 was next"),
    "the first poll begins too late": Planted("skipped by a reader", lambda h: h.read.append(Read("s", 0, "t", 0, 1, "b:0", 4.0)), "when 0 was next"),
    "a message is handed out twice": Planted("skipped by a reader", lambda h: h.read.append(Read("q", 0, "t", 0, 2, "a:1", 4.0)), "t/0@2 when 3"),
    "a dequeuer misses more than its lost answers explain": Planted(
        "skipped by a reader", lambda h: h.read.append(Read("q", 0, "t", 0, 4, "a:3", 4.0)), "passed over 2 messages of t and lost 1 answers"),
    "a committed offset fell": Planted(
        "committed offset moved back", lambda h: h.resumed.append(Resumed("r", 2, "t", 0, 1, 3.5)), "had committed 2 in t/0 and resumed at 1"),
    "a committed offset ran ahead": Planted(
        "committed offset moved back", lambda h: h.resumed.append(Resumed("r", 2, "t", 0, 7, 3.5)), "read up to 3"),
    "a group's members leave one out": Planted("missed by a group", lambda h: h.shared.pop(3), "no member of g was given t/0@2, and 0 more"),
    "a member reads what another one has committed": Planted(
        "done and given to a member again", lambda h: h.shared.append(Shared("g", "m1", "t", 0, 3, "a:3", 7.5)), "m1 was given t/0@3 when g had"),
    "a group's commit was lost": Planted(
        "done and given to a member again", lambda h: h.shared.append(Shared("g", "m2", "t", 0, 0, "a:0", 5.0)), "m2 was given t/0@0 when g had"),
    "a member saw another value": Planted(
        "two values at one offset", lambda h: h.shared.append(Shared("g", "m2", "t", 0, 3, "a:9", 5.3)), "m2 saw a:9"),
    "a reader stands still after healing": Planted("stuck", lambda h: h.finished.pop("r"), "reader r"),
    "a producer stands still after healing": Planted("stuck", lambda h: setattr(h, "healed_at", 8.9), "producer a"),
    "the managers answer no fresh read": Planted("stuck", lambda h: setattr(h, "topics", None), "no fresh read"),
    "the cluster never came back": Planted("stuck", lambda h: setattr(h, "healed_at", None), "did not come back"),
    "a name is created twice": Planted(
        "metadata not linearizable", lambda h: h.commands.append(Command("d", CREATE, "n", OK, CREATED, 2.0, 2.1)), "name n"),
    "a name is there before anybody made it": Planted(
        "metadata not linearizable", lambda h: h.commands.append(Command("d", CREATE, "k", OK, THERE_ALREADY, 2.0, 2.1)), "name k"),
    "a fresh read does not see what was made before": Planted(
        "metadata not linearizable", lambda h: h.commands.append(Command("d", EXISTS, "n", OK, False, 2.0, 2.1)), "name n"),
    "an acknowledged name is gone at the end": Planted("metadata not linearizable", lambda h: setattr(h, "topics", {"t"}), "name n"),
    "an id is given twice": Planted(
        "metadata not linearizable", lambda h: h.commands.append(Command("d", REGISTER, "", OK, 4, 3.0, 3.1)), "id 4 was given to c and to d"),
    "ids run backwards": Planted(
        "metadata not linearizable", lambda h: h.commands.append(Command("d", REGISTER, "", OK, 3, 3.0, 3.1)), "id 3 after 4"),
    "two managers lead in one term": Planted(
        "two leaders of one term", lambda h: h.led.append(Led("managers", 2, "manager-3", 3.0)), "term 2"),
    "two brokers lead a partition in one epoch": Planted(
        "two leaders of one term", lambda h: h.led.append(Led("t/0", 2, "broker-2", 3.0)), "led t/0"),
    "two replicas hold another entry at one position": Planted(
        "replicas differ", lambda h: h.entries["t/0"].update({"broker-2": [Entry(0, 1, "m"), Entry(1, 2, "q")]}), "differ at 1"),
    "a replica's log has a gap": Planted(
        "replicas differ", lambda h: h.entries["managers"].update({"manager-2": [Entry(5, 1, "z"), Entry(7, 1, "w")]}), "no entry between 5 and 7"),
    "a node answers with 500": Planted("answers outside the contract", lambda h: h.oddities.append(Oddity("queue", "status 500", 1.0)), "status 500"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_anomaly_is_found_and_named(name: str) -> None:
    planted, history = PLANTED[name], good()
    planted.plant(history)
    found = list(CHECKERS[planted.checker](history))
    assert any(planted.says in sentence for sentence in found), found


def test_every_checker_has_a_planted_anomaly() -> None:
    assert set(CHECKERS) == {planted.checker for planted in PLANTED.values()}


def test_nothing_is_called_lost_in_logs_that_nobody_could_look_into() -> None:
    """The cluster did not come back: that is told, and no more than that."""
    history = good()
    history.healed_at, history.stored = None, {}
    assert ["stuck"] == [name for name, checker in CHECKERS.items() if list(checker(history))]


def test_an_unknown_create_may_take_effect_late_or_never() -> None:
    """Answers that contradict each other in time are explained by one that was never answered."""
    unknown = Command("a", CREATE, "n", UNKNOWN, None, 0.0, 1.0)
    absent, there = Command("b", EXISTS, "n", OK, False, 2.0, 3.0), Command("b", EXISTS, "n", OK, True, 4.0, 5.0)
    assert is_linearizable([unknown, absent])
    assert is_linearizable([unknown, absent, there])
    assert not is_linearizable([absent, there])
    assert not is_linearizable([unknown, there, Command("b", EXISTS, "n", OK, False, 6.0, 7.0)])


def test_what_failed_is_not_done_and_what_overlaps_may_be_in_any_order() -> None:
    failed = Command("a", CREATE, "n", FAILED, None, 0.0, 1.0)
    assert not is_linearizable([failed, Command("b", EXISTS, "n", OK, True, 2.0, 3.0)])
    both = [Command("a", CREATE, "n", OK, CREATED, 0.0, 5.0), Command("b", CREATE, "n", OK, THERE_ALREADY, 1.0, 2.0)]
    assert is_linearizable(both)
    assert not is_linearizable([both[0]._replace(began=3.0), both[1]])


def test_a_message_without_an_answer_may_arrive_late() -> None:
    """Its producer went on to the next; nothing was promised of its place."""
    history = good()
    history.stored["t/0"]["broker-1"] += [Stored(4, "b:5"), Stored(5, "b:4")]
    history.sent += [Sent("b", 4, "t", None, None, UNKNOWN, 6.0, 6.1), Sent("b", 5, "t", 0, 4, OK, 6.2, 6.3)]
    assert [] == list(CHECKERS["reordered"](history))
    history.sent.append(Sent("b", 4, "t", 0, 5, OK, 6.0, 6.4))
    assert 1 == len(list(CHECKERS["reordered"](history)))
