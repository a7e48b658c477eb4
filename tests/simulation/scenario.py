"""The managers' scenario files. ``script.py`` says how they read; these are their commands.

    nodes N [entries-max=K]    N managers, all bootstrapped; the first command
    timeout A                  A's election timeout passes (tick A: no time passes)
    elect A by B C …           A's timeout passes and vote messages between A and these are delivered, until A leads; others are lost
    heartbeat A                time for a round of A's
    propose A CLIENT SEQ       a worker of A takes a command
    member A set B DISK voter|learner, member A remove B, read A ID
    hand-over A                A's leadership is to go to another manager
    crash A, start A, lose-disk A, compact A
    back-up A, put-back A      keep a copy of A's disk; run on that, which is told nobody
    lives                      all that are up exchange their life numbers twice
    repair A                   A looks for members that do not vote with the disk they have
    cut A, mend                nothing reaches or leaves A; everything does again
    rounds A                   half a second of rounds of A, everything delivered, no trace
    settle A                   the same; then all its members that are up must hold, and have committed, the same
    status                     a line per manager
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from pathlib import Path

from manager.raft.membership import REMOVE_MEMBER, SET_MEMBER
from manager.raft.messages import VoteReply, VoteRequest
from manager.raft.node import Role
from tests.simulation.checker import require
from tests.simulation.script import Script
from tests.simulation.world import Kinds, World

ROUNDS = 10


class Scenario(Script):
    """Runs the commands of one file on managers."""

    folder = Path(__file__).parent / "scenarios"

    def __init__(self, kinds: Kinds | None = None) -> None:
        self.kinds = kinds or Kinds()

    def commands(self) -> Mapping[str, Callable[..., None]]:
        return {
            "nodes": self._nodes, "timeout": self._timeout, "elect": self._elect, "heartbeat": self._heartbeat, "propose": self._propose,
            "member": self._member, "read": self._read, "crash": self._crash, "start": self._start, "cut": self._cut, "mend": self._mend,
            "rounds": self._rounds, "tick": self._tick, "lose-disk": self._lose_disk, "compact": self._compact, "settle": self._settle,
            "status": self._status, "hand-over": self._hand_over, "back-up": lambda node: self.world.back_up(int(node)),
            "put-back": lambda node: self.world.put_back(int(node)), "lives": self._lives, "repair": lambda node: self.world.repair(int(node))}

    def _nodes(self, count: str, entries_max: str = "entries-max=100") -> None:
        self.world = World(random.Random(0), int(count), self.kinds, trace=[], automatic=False, entries_max=int(entries_max.split("=")[1]))
        for node in self.world.managers:
            self.world.tick(node)

    # --- time and machines ---

    def _timeout(self, node: str) -> None:
        self.world.now += 0.5
        self.world.tick(int(node))

    def _heartbeat(self, node: str) -> None:
        self.world.now += 0.06
        self.world.tick(int(node))

    def _elect(self, node: str, _by: str, *voters: str) -> None:
        candidate, among = int(node), {int(voter) for voter in voters}
        for _ in range(3):  # a term may have to be learnt first
            self._timeout(node)
            while ballots := [message for message in self.world.network if isinstance(message.message, (VoteRequest, VoteReply))]:
                for envelope in ballots:
                    self.world.network.remove(envelope)
                    if {envelope.source, envelope.target} - {candidate} <= among:
                        self.world.deliver(envelope)
            if self.world.managers[candidate].node.role is Role.LEADER:
                return

    def _tick(self, node: str) -> None:
        self.world.tick(int(node))

    def _crash(self, node: str) -> None:
        self.world.crash(int(node))

    def _start(self, node: str) -> None:
        self.world.start(int(node))
        self.world.tick(int(node))

    def _lose_disk(self, node: str) -> None:
        self.world.lose_disk(int(node))

    def _lives(self) -> None:
        up = [node for node, manager in self.world.managers.items() if manager.up]
        for _ in range(2):
            for one, other in itertools.combinations(up, 2):
                self.world.exchange_lives(one, other)
        self.world.note("lives " + " ".join(f"{node}:{self.world.managers[node].disk.state.life}" for node in up))

    def _compact(self, node: str) -> None:
        self.world.managers[int(node)].disk.compact()

    # --- requests ---

    def _propose(self, node: str, client: str, seq: str) -> None:
        if not self.world.propose(int(node), client, int(seq)):
            self.world.note(f"{node} does not lead")

    def _member(self, leader: str, verb: str, node: str, disk_id: str = "", kind: str = "") -> None:
        command = {"type": REMOVE_MEMBER, "node_id": int(node)}
        if verb == "set":
            command = {"type": SET_MEMBER, "node_id": int(node), "url": f"m{node}", "disk_id": disk_id, "voter": kind == "voter"}
        self.world.change_member(int(leader), command)

    def _read(self, node: str, read_id: str) -> None:
        if not self.world.read(int(node), int(read_id)):
            self.world.note(f"{node} cannot confirm a read")

    def _hand_over(self, node: str) -> None:
        self.world.hand_over(int(node))

    # --- network ---

    def _cut(self, node: str) -> None:
        others = [other for other in self.world.managers if other != int(node)]
        self.world.cut |= {(int(node), other) for other in others} | {(other, int(node)) for other in others}

    def _mend(self) -> None:
        self.world.cut = set()

    # --- looking ---

    def _rounds(self, leader: str) -> None:
        traced, self.world.trace = self.world.trace, None
        for _ in range(ROUNDS):
            self._heartbeat(leader)
            self._deliver()
        self.world.trace = traced

    def _settle(self, leader: str) -> None:
        self._rounds(leader)
        world, ends = self.world, {}
        for node in world.managers[int(leader)].disk.membership().members:
            manager = world.managers[node]
            if manager.up:
                ends[node] = (manager.disk.log.end, manager.disk.state.commit_index, manager.disk.state.applied_index)
        require(len({position for end in ends.values() for position in end}) == 1, "convergence", f"(end, commit, applied) are {ends}")
        self._status()

    def _status(self) -> None:
        for node, manager in self.world.managers.items():
            state, log = manager.disk.state, manager.disk.log
            role = manager.node.role if manager.up else "down"
            entries = " ".join(f"{entry.index}@{entry.term}" for entry in log.between(log.start, log.end))
            self.world.note(f"{node} {role} term={state.current_term} commit={state.commit_index} log={log.start}|{entries}")
