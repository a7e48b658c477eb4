"""A whole run from one seed: clients, faults, an operator who repairs, then healing, after which everything must converge."""

from __future__ import annotations

import random
from dataclasses import dataclass

from manager.raft.membership import REMOVE_MEMBER, SET_MEMBER
from manager.raft.node import Role
from tests.simulation.manager import Waiting
from tests.simulation.run import Result, Run
from tests.simulation.world import Founding, Kinds, Rates, World

CHAOS_SECONDS = 4.0
CLIENT_TIMEOUT_SECONDS = 0.5


@dataclass(frozen=True)
class Options:
    """What a run is made of, beside its seed."""

    nodes: int = 3
    seconds: float = CHAOS_SECONDS
    clients: int = 2


class Client:
    """Sends one command after another, and each until it is answered, with the same sequence."""

    def __init__(self, run: ManagersRun, name: str) -> None:
        self.run, self.name, self.seq, self.attempt = run, name, 1, 0
        self.idle = False
        self._later()

    def _later(self) -> None:
        self.run.world.at(self.run.rng.uniform(0.005, self.run.client_pause), self._send, self.attempt)

    def _send(self, attempt: int) -> None:
        world = self.run.world
        if attempt != self.attempt:
            return
        self.attempt += 1
        leaders = [node for node, manager in world.managers.items() if manager.up and manager.disk.state.leading]
        if leaders and world.propose(self.run.rng.choice(leaders), self.name, self.seq):
            world.at(CLIENT_TIMEOUT_SECONDS, self._send, self.attempt)
        else:
            self._later()

    def answered(self, wait: Waiting, reply: int | None) -> None:
        if wait.seq != self.seq:
            return
        self.attempt += 1
        if reply is not None:
            self.seq += 1
            self.idle = self.run.healing
        if not self.idle:
            self._later()


class ManagersRun(Run):
    """One seed."""

    heal_seconds = 12.0

    def __init__(self, seed: int, options: Options, kinds: Kinds | None = None, *, trace: bool = False) -> None:
        super().__init__(seed, options.seconds)
        self.rng = random.Random(f"{seed}/{options.nodes}")
        level = self.rng.choice((0.0, 0.3, 1.0))
        rates = Rates(drop=level * self.rng.uniform(0, 0.25), duplicate=self.rng.uniform(0, 0.2), slow=self.rng.uniform(0, 0.08),
                      crash_between=self.rng.choice((0.0, 0.003, 0.015)))
        founding = self.rng.choices(list(Founding), (7, 1, 2))[0]
        self.world = World(self.rng, options.nodes, kinds or Kinds(), rates, [] if trace else None, founding,
                           entries_max=self.rng.choice((1, 3, 20)))
        self.reads = 0
        self.tolerated = (options.nodes - 1) // 2
        self.client_pause = self.rng.choice((0.03, 0.15, 0.3))
        self.clients = {f"c{n}": Client(self, f"c{n}") for n in range(1, options.clients + 1)}
        self.world.on_answer = lambda wait, reply: self.clients[wait.client].answered(wait, reply)
        self.pace = self.rng.uniform(0.1, 0.5)
        for loop in (self._nemesis, self._operator, self._reader, self._compactor, self._hand_over, self._keeper):
            self.world.at(self.rng.uniform(0.3, 0.8), loop)

    # --- actors ---

    def _nemesis(self) -> None:
        if self.healing:
            return
        faults = self._crash, self._crash_all, self._cut, self.mend, self._lose_disk, self._put_back
        fault = self.rng.choices(faults, (4, 1, 4, 3, 2, 2))[0]
        fault()
        self.faults += 1
        self.world.at(self.rng.uniform(0.2, 1.8) * self.pace, self._nemesis)

    def _crash(self) -> None:
        up = [node for node, manager in self.world.managers.items() if manager.up]
        if up:
            node = self.rng.choice(up)
            self.world.crash(node)
            self.world.at(self.rng.uniform(0.01, 0.8), self.world.start, node)

    def _crash_all(self) -> None:
        for node, manager in self.world.managers.items():
            if manager.up:
                self.world.crash(node)
                self.world.at(self.rng.uniform(0.01, 0.3), self.world.start, node)

    def _cut(self) -> None:
        self.split(list(self.world.managers))
        self.world.note(f"cut {sorted(self.world.cut)}")

    def _lose_disk(self) -> None:
        """No more disks at once than a majority can spare: a slot that is not filled by its present disk is lost already."""
        if self.missing() < self.tolerated and not any(manager.disk.copies for manager in self.world.managers.values()):
            node = self.rng.choice(list(self.world.managers))
            if self._is_in_place(node):
                self.world.lose_disk(node)
                self.world.checker.seen["disks lost"] += 1
                self.world.at(self.rng.uniform(0.01, 0.5), self.world.start, node)

    def _put_back(self) -> None:
        """Instead of a disk: an older copy of it. Only where all others can tell, as only then somebody must; and with no other one missing."""
        if self.missing() == 0:
            for node in self.world.managers:
                if self.world.is_outlived(node):
                    self.world.put_back(node)
                    self.world.at(self.rng.uniform(0.01, 0.5), self.world.start, node)
                    return

    def _keeper(self) -> None:
        """Backs a disk up now and then, and has the managers exchange their life numbers."""
        nodes = list(self.world.managers)
        if self.rng.random() < 0.2:
            self.world.back_up(self.rng.choice(nodes))
        self.world.exchange_lives(*self.rng.sample(nodes, 2))
        self.world.at(self.rng.uniform(0.02, 0.1), self._keeper)

    def missing(self) -> int:
        """How many managers are no voter with the disk they have, by what is committed or by a change that is under way."""
        return sum(1 for node in self.world.managers if not self._is_in_place(node))

    def _is_in_place(self, node: int) -> bool:
        committed = self.world.checker.fold.membership
        in_logs = (manager.disk.membership() for manager in self.world.managers.values())
        views = [committed, *(view for view in in_logs if view.index > committed.index)]
        return all(view.is_voter(node, self.world.managers[node].disk.identity) for view in views)

    def _operator(self) -> None:
        """Who repairs: takes a lost disk out, adds the new one, now and then removes a manager and adds it again."""
        world = self.world
        leaders = [node for node, manager in world.managers.items() if manager.up and manager.node.role is Role.LEADER]
        if leaders:
            leader = self.rng.choice(leaders)
            command = self._repair(leader) or (None if self.healing else self._removal())
            if command is not None and self.rng.random() < 0.5:
                world.change_member(leader, command)
            else:
                world.repair(leader)
        world.at(self.rng.uniform(0.05, 0.3), self._operator)

    def _repair(self, leader: int) -> dict | None:
        members = self.world.managers[leader].disk.membership().members
        for node, manager in self.world.managers.items():
            if manager.disk.copies:
                continue  # the operator does not know: the leader finds out
            disk_id, member = manager.disk.state.disk_id, members.get(node)
            if member is None or member.disk_id != disk_id:
                return {"type": SET_MEMBER, "node_id": node, "url": f"m{node}", "disk_id": disk_id, "voter": False}
            if not member.voter:
                return {"type": SET_MEMBER, "node_id": node, "url": f"m{node}", "disk_id": disk_id, "voter": True}
        return None

    def _removal(self) -> dict | None:
        if self.missing() < self.tolerated and self.rng.random() < 0.1:
            return {"type": REMOVE_MEMBER, "node_id": self.rng.choice(list(self.world.managers))}
        return None

    def _reader(self) -> None:
        if self.healing:
            return
        node = self.rng.choice(list(self.world.managers))
        if self.world.managers[node].up:
            self.reads += 1
            self.world.read(node, self.reads)
        self.world.at(self.rng.uniform(0.02, 0.2), self._reader)

    def _hand_over(self) -> None:
        """Now and then a leader is asked to hand over, whatever else is going on."""
        if self.healing:
            return
        leaders = [node for node, manager in self.world.managers.items() if manager.up and manager.node.role is Role.LEADER]
        if leaders:
            self.world.hand_over(self.rng.choice(leaders))
        self.world.at(self.rng.uniform(0.3, 1.5), self._hand_over)

    def _compactor(self) -> None:
        manager = self.rng.choice(list(self.world.managers.values()))
        if manager.up:
            manager.disk.compact()
        self.world.at(self.rng.uniform(0.1, 0.8), self._compactor)

    # --- the end ---

    def heal(self) -> None:
        world = self.world
        self.healing = True
        world.rates = Rates()
        world.cut = set()
        world.note("healed")
        for node in world.managers:
            world.start(node)

    def has_converged(self) -> bool:
        """Everybody is a voter, has applied the same whole log, and no client waits."""
        managers = list(self.world.managers.values())
        ends = {(m.disk.log.end, m.disk.state.commit_index, m.disk.state.applied_index) for m in managers}
        leaders = sum(1 for m in managers if m.node.role is Role.LEADER)
        return (len(ends) == 1 and len(set(next(iter(ends)))) == 1 and leaders == 1 and self.missing() == 0
                and all(client.idle for client in self.clients.values()))

    def status(self) -> str:
        """For a failure's message."""
        return "; ".join(
            f"{m.node_id} {m.node.role if m.up else 'down'} term={m.disk.state.current_term} log=[{m.disk.log.start},{m.disk.log.end}) "
            f"commit={m.disk.state.commit_index} applied={m.disk.state.applied_index}" for m in self.world.managers.values()
        ) + f"; clients {[(c.name, c.seq, c.idle) for c in self.clients.values()]}"


def run_seed(seed: int, options: Options | None = None, kinds: Kinds | None = None, *, trace: bool = False) -> Result:
    """Run one seed to its end."""
    return ManagersRun(seed, options or Options(), kinds, trace=trace).go()
