"""Carries a schedule out on a lab: begins each fault when it is due, ends it when it is over, and heals everything at the end."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import requests

from myqueue.errors import MyQueueError
from myqueue.protocol import routes
from myqueue.supervisor.process import descendants, signal_all
from tests.campaign.history import History, Struck
from tests.campaign.lab import Lab
from tests.campaign.schedule import WRITE_MANAGER, Fault
from tests.campaign.switchboard import CUT, LOSE_REPLY, RESET_IN_REPLY, SLOW, Rule
from tests.support.waiting import wait_until

ASK_SECONDS = 1.0
CALL_SECONDS = 30.0
HEAL_SECONDS = 120.0
RETRY_SECONDS = 0.3
DOWN_SECONDS = 60.0
RESTART_SECONDS = 10.0  # of a PostgreSQL that was ended
LOOK_SECONDS = 0.2
TOOL_SECONDS = 5.0
ERRANDS = frozenset({"drain_broker", "add_broker"})
FILE_BYTES_FULL = 1 << 20  # what a file may grow to while its disk is "full"
Undo = Callable[[], object]


class _Errand(threading.Thread):
    """Does something, and the other thing once it is ``over``."""

    def __init__(self, fault: Fault, now: Callable[[], float], begin: Callable[[], object], end: Callable[[], object]) -> None:
        super().__init__(name="errand", daemon=True)
        self.fault, self._now = fault, now
        self.over = threading.Event()
        self.trouble = ""
        self.began = self.ended = now()
        self._begin, self._end = begin, end
        self.start()

    def run(self) -> None:
        try:
            self._begin()
            self.over.wait()
            self._end()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told as a remark
            self.trouble = f"{type(error).__name__}: {error}"
        self.ended = self._now()


@dataclass
class _Running:
    fault: Fault
    victims: tuple[str, ...]
    began: float
    undo: Undo

    @property
    def ends(self) -> float:
        return self.began + self.fault.seconds


class Nemesis:
    """Runs a schedule. One thread; ``now`` is the campaign's clock in seconds."""

    def __init__(self, lab: Lab, history: History, *, seed: int, now: Callable[[], float], say: Callable[[str], None] = lambda line: None) -> None:
        self._lab, self._history, self._now, self._say = lab, history, now, say
        self._chance = random.Random(seed)
        self._running: list[_Running] = []
        self._errands: list[_Errand] = []
        self._drained: set[str] = set()  # perhaps: they are to be used again in the end

    def run(self, faults: Sequence[Fault], enough: Callable[[History], bool]) -> None:
        """Begin and end every fault in its time; returns when all are over, or as soon as ``enough`` says so.

        One that takes long to begin holds up all that come after it: they keep their distances, and so their own ends.
        """
        waiting, late = sorted(faults, key=lambda fault: fault.at_seconds), 0.0
        while (waiting or self._running) and not enough(self._history):
            first = min(self._running, key=lambda one: one.ends, default=None)
            if waiting and (first is None or waiting[0].at_seconds + late <= first.ends):
                if self._is_time(waiting[0].at_seconds + late):
                    late = max(late, self._now() - waiting[0].at_seconds)
                    self._begin(waiting.pop(0))
            elif first is not None and self._is_time(first.ends):
                self._end(first)

    def _is_time(self, at: float) -> bool:
        """Wait for a moment, but not for longer than a look at ``enough`` may be late."""
        left = at - self._now()
        if left > 0:
            time.sleep(min(left, LOOK_SECONDS))
        return left <= LOOK_SECONDS

    def heal(self) -> None:
        """End what is under way, and start what is down or paused."""
        for one in list(self._running):
            self._end(one)
        for name, state in self._lab.states().items():
            if state == "paused":
                self._lab.tell("resume", name)
            elif state == "down":
                self._lab.tell("start", name)
        self._finish_errands()
        for name in sorted(self._drained):
            began = self._now()
            try:
                self._drain(name, draining=False)
            except AssertionError as error:  # the campaign goes on, to its verdict
                self._history.struck.append(Struck("drain_broker", name, began, self._now(), str(error)))

    def remove_added(self) -> None:
        """Remove the brokers that were added, and stop them; everything else is healed. Raises AssertionError: one could not be drained."""
        for name in self._lab.states():
            if name.startswith("broker-") and name not in self._lab.nodes.brokers:
                self._insist("DELETE", routes.BROKER.format(broker_id=self._lab.broker_id(name)), what=f"{name} to be removed")
                self._lab.tell("stop", name)

    def _begin(self, fault: Fault) -> None:
        victims, began, remark = self._named(fault.victims), self._now(), ""
        undo: Undo = _nothing
        self._say(f"{began:6.1f} s  {fault.kind} {' '.join(victims)} for {fault.seconds:.1f} s")
        try:
            undo = _ACTIONS[fault.kind](self, fault, victims)
        except (MyQueueError, OSError, AssertionError) as error:
            remark = f"could not be begun: {error}"
        self._running.append(_Running(fault, victims, began, undo))
        if remark:
            self._end(self._running[-1], remark)

    def _end(self, one: _Running, remark: str = "") -> None:
        self._running.remove(one)
        try:
            one.undo()
        except (MyQueueError, OSError, AssertionError) as error:
            remark = f"could not be ended: {error}"
        if one.fault.kind not in ERRANDS or remark:
            self._history.struck.append(Struck(one.fault.kind, " ".join(one.victims), one.began, self._now(), remark))

    def _named(self, victims: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(self._write_manager() if name == WRITE_MANAGER else name for name in victims)

    def _write_manager(self) -> str:
        """Who leads just now; any manager where nobody says so."""
        for name in self._lab.nodes.managers:
            try:
                if requests.get(f"{self._lab.direct_url(name)}/raft_status", timeout=ASK_SECONDS).json().get("is_leader"):
                    return name
            except (requests.RequestException, ValueError):
                continue
        return self._chance.choice(self._lab.nodes.managers)

    # --- nodes ---

    def _take_down(self, command: str, victims: tuple[str, ...]) -> Undo:
        for name in victims:
            self._lab.tell(command, name)
        return partial(self._bring_up, victims)

    def _bring_up(self, victims: tuple[str, ...]) -> None:
        for name in sorted(victims, key=lambda name: not name.startswith("postgres")):
            self._lab.tell("start", name)

    def _pause(self, victims: tuple[str, ...]) -> Undo:
        for name in victims:
            self._lab.tell("pause", name)
        return lambda: [self._lab.tell("resume", name) for name in victims]

    def _restart_one_by_one(self, victims: tuple[str, ...]) -> Undo:
        for name in victims:
            self._lab.tell("stop", name)
            wait_until(lambda name=name: self._lab.states()[name] == "down", timeout_seconds=DOWN_SECONDS, what=f"{name} to end")
            self._lab.tell("start", name)
            wait_until(lambda name=name: name not in self._lab.unready(), timeout_seconds=DOWN_SECONDS, what=f"{name} to be ready",
                       interval_seconds=0.2)
        return _nothing

    def _server_processes(self, name: str) -> list[int]:
        """PostgreSQL's own processes of a node: its postmaster first."""
        runner = self._lab.pids()[name]
        return descendants(runner) if runner else []

    def _running_server(self, name: str) -> list[int]:
        """The postmaster and its processes; one that another fault has ended is waited for. Raises AssertionError."""
        wait_until(lambda: len(self._server_processes(name)) > 1, timeout_seconds=RESTART_SECONDS, what=f"{name} to run")
        return self._server_processes(name)

    def _kill_backend(self, victims: tuple[str, ...]) -> Undo:
        signal_all([self._chance.choice(self._running_server(victims[0])[1:])], signal.SIGKILL)
        return _nothing

    def _stop_at_once(self, victims: tuple[str, ...]) -> Undo:
        """SIGQUIT to the postmaster: it ends without a checkpoint. The supervisor starts it again."""
        signal_all(self._running_server(victims[0])[:1], signal.SIGQUIT)
        return _nothing

    def _fill_disk(self, victims: tuple[str, ...]) -> Undo:
        """No file of this PostgreSQL may grow: writes fail as on a full disk, those of the log too."""
        for pid in self._running_server(victims[0]):
            _limit_files(pid, FILE_BYTES_FULL)

        def undo() -> None:  # one that ended for it, and was started again, has no limit
            for pid in self._server_processes(victims[0]):
                _limit_files(pid, resource.RLIM_INFINITY)

        return undo

    def _jump(self, victims: tuple[str, ...], seconds: float) -> Undo:
        self._lab.set_clock(victims[0], seconds)
        return partial(self._lab.set_clock, victims[0], 0.0)

    # --- brokers that come and go ---

    def _drain(self, name: str, *, draining: bool) -> None:
        """Raises AssertionError: the managers did not do it in time."""
        self._insist("POST", routes.DRAIN.format(broker_id=self._lab.broker_id(name)), {"draining": draining},
                     what=f"{name} to be {'drained' if draining else 'used'}")

    def _run_errand(self, fault: Fault, begin: Callable[[], object], end: Callable[[], object]) -> Undo:
        """What needs the managers waits for them beside everything else: they may be struck just now. How it went is noted at the end."""
        errand = _Errand(fault, self._now, begin, end)
        self._errands.append(errand)
        return errand.over.set

    def _drain_for_a_while(self, fault: Fault, victims: tuple[str, ...]) -> Undo:
        name = victims[0]
        self._drained.add(name)
        return self._run_errand(fault, lambda: self._drain(name, draining=True), lambda: self._drain(name, draining=False))

    def _add_broker(self, fault: Fault) -> Undo:
        added: list[str] = []
        return self._run_errand(fault, lambda: added.append(self._lab.add_broker()), lambda: self._drain(added[0], draining=True))

    def _finish_errands(self) -> None:
        for errand in self._errands:
            errand.over.set()
        for errand in self._errands:
            errand.join()
            self._history.struck.append(Struck(errand.fault.kind, " ".join(errand.fault.victims), errand.began, errand.ended, errand.trouble))
        self._errands = []

    def _insist(self, method: str, path: str, body: object = None, *, what: str) -> None:
        """Ask the managers, which may be without a leader just now, until they have done it. Raises AssertionError with what they said last."""
        began, said = time.monotonic(), ""
        while time.monotonic() < began + HEAL_SECONDS:
            try:
                answer = requests.request(method, self._lab.url + path, json=body, timeout=CALL_SECONDS)
            except requests.RequestException as error:
                said = str(error)
            else:
                if answer.ok or (method == "DELETE" and answer.status_code == 404):  # an earlier one that got no answer was done
                    return
                said = f"{answer.status_code} {answer.text[:300]}"
                if answer.status_code not in (409, 503):  # 409: brokers that were just started may not have been heard yet
                    break
            time.sleep(RETRY_SECONDS)
        raise AssertionError(f"waited {time.monotonic() - began:.0f} s in vain for {what}; the last answer: {said}")

    # --- links ---

    def _rules(self, *rules: Rule) -> Undo:
        for rule in rules:
            self._lab.switchboard.put(rule)
        return lambda: [self._lab.switchboard.lift(rule) for rule in rules]

    def _cut(self, source: str, target: str, *, both: bool) -> Undo:
        return self._rules(Rule(CUT, source, target), *([Rule(CUT, target, source)] if both else []))

    def _slow(self, source: str, target: str, seconds: float) -> Undo:
        return self._rules(Rule(SLOW, source, target, seconds), Rule(SLOW, target, source, seconds))

    def _slow_all(self, victims: tuple[str, ...], seconds: float) -> Undo:
        return self._rules(*(Rule(SLOW, source, target, seconds) for source in victims for target in victims if source != target))


def _limit_files(pid: int, size: int) -> None:
    """Set the soft limit on file sizes of a running process, as its own account: it may be another one than ours."""
    try:
        owner = os.stat(f"/proc/{pid}")
        if owner.st_uid == os.geteuid():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            return
        text = "unlimited" if size == resource.RLIM_INFINITY else str(size)
        done = subprocess.run(["prlimit", f"--pid={pid}", f"--fsize={text}:"], user=owner.st_uid, group=owner.st_gid, extra_groups=(),
                              capture_output=True, text=True, timeout=TOOL_SECONDS)
    except (FileNotFoundError, ProcessLookupError):  # a backend that has ended meanwhile
        return
    if done.returncode and os.path.exists(f"/proc/{pid}"):
        raise OSError(f"prlimit: {done.stderr.strip()}")


def _nothing() -> None:
    """What there is to undo of a fault that is over at once."""


_Action = Callable[[Nemesis, Fault, tuple[str, ...]], Undo]
_KILL: _Action = lambda nemesis, fault, victims: nemesis._take_down("kill", victims)  # noqa: E731 - a table of one-liners
_ACTIONS: dict[str, _Action] = {
    **dict.fromkeys(("kill_broker", "kill_manager", "kill_write_manager", "kill_balancer", "kill_postgres", "kill_manager_majority", "kill_managers",
                     "kill_brokers", "kill_all"), _KILL),
    "kill_backend": lambda nemesis, fault, victims: nemesis._kill_backend(victims),
    "stop_postgres_at_once": lambda nemesis, fault, victims: nemesis._stop_at_once(victims),
    "restart": lambda nemesis, fault, victims: nemesis._take_down("stop", victims),
    "drain_broker": lambda nemesis, fault, victims: nemesis._drain_for_a_while(fault, victims),
    "add_broker": lambda nemesis, fault, victims: nemesis._add_broker(fault),
    "restart_rolling": lambda nemesis, fault, victims: nemesis._restart_one_by_one(victims),
    **dict.fromkeys(("pause", "pause_write_manager", "pause_managers"), lambda nemesis, fault, victims: nemesis._pause(victims)),
    "cut_one_way": lambda nemesis, fault, victims: nemesis._cut(*victims, both=False),
    **dict.fromkeys(("cut_two_ways", "cut_database"), lambda nemesis, fault, victims: nemesis._cut(*victims, both=True)),
    **dict.fromkeys(("slow_link", "slow_database"), lambda nemesis, fault, victims: nemesis._slow(*victims, fault.amount)),
    "slow_managers": lambda nemesis, fault, victims: nemesis._slow_all(victims, fault.amount),
    "lose_database_reply": lambda nemesis, fault, victims: nemesis._rules(Rule(LOSE_REPLY, *victims, every=50)),
    "lose_reply": lambda nemesis, fault, victims: nemesis._rules(Rule(LOSE_REPLY, *victims)),
    "reset_in_reply": lambda nemesis, fault, victims: nemesis._rules(Rule(RESET_IN_REPLY, *victims)),
    "disk_full": lambda nemesis, fault, victims: nemesis._fill_disk(victims),
    "clock_jump": lambda nemesis, fault, victims: nemesis._jump(victims, fault.amount),
}
