"""The replication core with requests of several entries and an appointed leader: every log must end at a request's border.

Managers write requests of one entry only, so that this rule needs a world of its own: three replicas, a leader that is replaced by the
most advanced of a majority, and messages that are lost, late, or cut short by a leader's death.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, replace

from db.replication import (
    AppendReply,
    AppendRequest,
    Holder,
    MemoryLog,
    Progress,
    ReplicaState,
    after_reply,
    chain_before,
    commit_position,
    end_epoch,
    holders,
    plan_append,
    plan_send,
)
from tests.simulation.checker import require

NODES = (1, 2, 3)
VOTERS = {node: f"d{node}" for node in NODES}


@dataclass(frozen=True, slots=True)
class Block:
    """An entry of a request."""

    epoch: int
    text: str
    request_index: int
    request_count: int
    chain: bytes = b""

    def chain_after(self, previous: bytes) -> bytes:
        return hashlib.sha256(previous + repr((self.epoch, self.text, self.request_index, self.request_count)).encode()).digest()


class Replica:
    """Durable state and log of one replica; progress while it leads."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.state = ReplicaState(0, 0, f"d{node}")
        self.log = MemoryLog([])
        self.progress: dict[int, Progress] = {}
        self.rounds = 0

    def lead(self, epoch: int) -> None:
        self.state = replace(self.state, promised_epoch=epoch, leader_epoch=epoch)
        self.progress = {node: Progress(next=self.log.end) for node in NODES if node != self.node}
        self.write(["marker"])

    def write(self, texts: list[str]) -> None:
        """One request, all or nothing."""
        chain = chain_before(self.log, self.log.end)
        for place, text in enumerate(texts):
            block = Block(self.state.promised_epoch, text, place, len(texts))
            chain = block.chain_after(chain)
            self.log.entries.append(replace(block, chain=chain))

    def ask(self, target: int, entries_max: int) -> AppendRequest:
        self.rounds += 1
        plan = plan_send(self.progress[target], self.log, entries_max=entries_max)
        assert plan is not None
        return AppendRequest(self.state.promised_epoch, plan.position, plan.prev_epoch, self.log.between(plan.position, plan.end),
                             self.state.commit, self.rounds)

    def take(self, request: AppendRequest) -> AppendReply:
        plan = plan_append(self.state, self.log, request)
        if plan.promise is not None:
            self.state = replace(self.state, promised_epoch=plan.promise)
        if plan.delete_from is not None:
            self.log.truncate(plan.delete_from)
        self.log.entries.extend(plan.insert)
        if plan.commit is not None:
            self.state = replace(self.state, commit=plan.commit)
        return plan.reply

    def learn(self, source: int, reply: AppendReply) -> None:
        if not self.state.leading or reply.epoch != self.state.promised_epoch:
            return
        self.progress[source] = after_reply(self.progress[source], reply, epoch=reply.epoch, rounds=self.rounds, log=self.log)
        held = holders((self.node, Holder(f"d{self.node}", self.log.end)), self.progress.items())
        commit = commit_position(VOTERS, held, epoch=reply.epoch, log=self.log, commit=self.state.commit)
        self.state = replace(self.state, commit=commit)


def run_requests(seed: int, *, steps: int = 250) -> int:
    """One schedule; returns how many entries were committed.

    Raises:
        Violation: a log, a match or a commit is inside a request, or what was committed changed.
    """
    rng = random.Random(f"requests/{seed}")
    replicas = {node: Replica(node) for node in NODES}
    requests: list[tuple[int, int, AppendRequest]] = []
    replies: list[tuple[int, int, AppendReply]] = []
    committed: dict[int, bytes] = {}
    leader, epoch, entries_max = 1, 1, rng.choice((1, 2, 3, 10))
    replicas[1].lead(1)
    for step in range(steps):
        action = rng.random()
        if action < 0.03:
            epoch += 1
            leader = _appoint(replicas, epoch, rng)
        elif action < 0.2 and replicas[leader].state.leading:
            replicas[leader].write([f"{step}.{place}" for place in range(rng.randint(1, 4))])
        elif action < 0.5 and replicas[leader].state.leading:
            target = rng.choice([node for node in NODES if node != leader])
            requests.append((leader, target, replicas[leader].ask(target, entries_max)))
        elif action < 0.8 and requests:
            source, target, request = requests.pop(rng.randrange(len(requests)) if rng.random() < 0.3 else 0)
            if rng.random() < 0.9:
                replies.append((target, source, replicas[target].take(request)))
        elif replies:
            source, target, reply = replies.pop(0)
            replicas[target].learn(source, reply)
        for replica in replicas.values():
            _check(replica, committed)
    return len(committed)


def _appoint(replicas: dict[int, Replica], epoch: int, rng: random.Random) -> int:
    """Promises of a majority, then the most advanced of it leads."""
    majority = rng.sample(NODES, 2)
    for node in majority:
        replicas[node].state = replace(replicas[node].state, promised_epoch=epoch)
    best = max(majority, key=lambda node: (end_epoch(replicas[node].log), replicas[node].log.end))
    replicas[best].lead(epoch)
    return best


def _check(replica: Replica, committed: dict[int, bytes]) -> None:
    log, commit = replica.log, replica.state.commit
    for border, what in ((log.end, "log"), (commit, "commit")):
        if border:
            last = log.at(border - 1)
            require(last.request_index == last.request_count - 1, "whole requests", f"the {what} of {replica.node} ends inside a request at {border}")
    for position in range(len(committed), commit):
        committed[position] = log.chain_at(position)
    if commit:
        require(committed[commit - 1] == log.chain_at(commit - 1), "R5", f"what {replica.node} holds committed at {commit - 1} differs")
