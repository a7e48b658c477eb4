"""The run: draw, tame, send, judge; and in the end whether the cluster is as it must be."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from myqueue.protocol import routes
from myqueue.supervisor import Cluster
from tests.support.waiting import wait_until

from . import framings, native, older
from .ledger import Ledger, call, delete, schemas_of, topics_of
from .native import Pool
from .roster import Roster
from .rules import ANSWER_SECONDS_MAX, Rules
from .tame import Budget, tame
from .wire import FRAMING, NATIVE, Client, Got, Sent, exchange

ROUND = 20  # requests of each kind before the topics that were made are looked at and deleted
KEYS = ("k", "a")
UNTOUCHED = 25  # messages of the topic that nobody speaks of
ELECTIONS = ("elect_leader", "repair_replica")  # what holds one, and so is refused while the last one is not settled


def no_words(_line: str) -> None:
    """For who does not want to be told."""


@dataclass(slots=True)
class Report:
    """What was done and what was wrong with it: each kind of finding once, with its number and the first request that showed it."""

    requests: int = 0
    statuses: dict[int, int] = field(default_factory=dict)
    slowest_seconds: float = 0.0
    accepted: int = 0
    findings: dict[str, tuple[int, str]] = field(default_factory=dict)
    say: Callable[[str], Any] = no_words

    def find(self, what: str, example: str = "") -> None:
        if what not in self.findings:
            self.say(f"fuzz: {what}\n    {example}")
        count, first = self.findings.get(what, (0, example))
        self.findings[what] = (count + 1, first)

    def answered(self, got: Got) -> None:
        self.requests += 1
        self.statuses[got.status] = self.statuses.get(got.status, 0) + 1
        self.slowest_seconds = max(self.slowest_seconds, got.seconds)


class Run:
    """One run against a cluster. ``ports``: the balancer's first, then of other nodes, for what is sent as bytes."""

    def __init__(self, ports: tuple[int, ...], *, seed: int, say: Callable[[str], Any], token: str | None = None) -> None:
        self._ports, self._seed = ports, seed
        self._client, self._rules, self._ledger, self._budget = Client(ports[0], token=token), Rules(), Ledger(), Budget()
        self._name = f"fuzz-{secrets.token_hex(3)}"
        self.report = Report(say=say)

    def do(self, requests: int) -> Report:
        """Send so many requests, and judge them. The topics of the run are deleted afterwards."""
        pool, untouched = self._prepare()
        before = self._content(untouched)
        kinds = self._kinds(pool)
        turn = 0
        while self.report.requests < requests:
            self._roster.gather(self._client)
            call(self._client, "POST", routes.PRODUCERS, json.dumps({"topics": [pool.doomed]}).encode())
            each = max(1, min(ROUND, (requests - self.report.requests) // len(kinds)))
            for number, (name, strategy, act) in enumerate(kinds):
                self._draw(strategy, act, each, self._seed + turn * len(kinds) + number, name)
                if self.report.requests >= requests:
                    break
            self._look(pool)
            turn += 1
            self.report.say(f"fuzz: {self.report.requests} requests, {len(self.report.findings)} kinds of findings")
        if self._content(untouched) != before:
            self.report.find("the topic that nobody speaks of has changed")
        self._roster.disband(self._client, self._name)
        for topic in (*pool.topics, pool.doomed, untouched):
            delete(self._client, topic)
        self._client.close()
        return self.report

    def _prepare(self) -> tuple[Pool, str]:
        self._others = set(topics_of(self._client))
        kept = tuple(f"{self._name}.{number}" for number in range(3))
        for topic in (*kept, f"{self._name}.untouched"):
            call(self._client, "POST", routes.TOPICS, json.dumps({"topic": topic, "partitions": 2}).encode())
        records = json.dumps({"records": [{"value": f"message {number}", "key": "k"} for number in range(UNTOUCHED)]}).encode()
        for partition in (0, 1):
            call(self._client, "POST", routes.RECORDS.format(topic=f"{self._name}.untouched", partition=partition), records)
        times = [self._append(topic, partition) for topic in kept for partition in (0, 1)]
        search = call(self._client, "GET", routes.SEARCH.format(topic=kept[0]) + f"?key={KEYS[0]}&max_records=1")
        groups, leaving, idle = (f"{self._name}.stays-0", f"{self._name}.stays-1"), f"{self._name}.leaves", f"{self._name}.idle"
        self._roster = Roster(kept, staying=groups, leaving=leaving, idle=idle)
        body = json.dumps({"topics": kept}).encode()
        producers = [one["producer_id"] for one in call(self._client, "POST", routes.PRODUCERS, body)["producers"].values()]
        consumers = [one["consumer_id"] for one in call(self._client, "POST", routes.CONSUMERS, body)["consumers"].values()]
        pool = Pool(kept, f"{self._name}.doomed", tuple(producers), tuple(consumers), (1, 9, *self._ports), groups, leaving, idle, KEYS,
                    (times[0], times[-1], times[-1] + 1), (search["cursor"],))
        return pool, f"{self._name}.untouched"

    def _append(self, topic: str, partition: int) -> int:
        """A few messages that can be searched for; when they were stored."""
        body = json.dumps({"records": [{"value": f"of {key}", "key": key} for key in KEYS * 2]}).encode()
        path = routes.RECORDS.format(topic=topic, partition=partition)
        sent = Sent(NATIVE, "append_records", "POST", path, {"Content-Type": "application/json"}, body)
        got = self._client.ask(sent)
        assert got.status == 200, got
        self._ledger.note(sent, got)
        return int(got.json["append_time"])

    def _content(self, topic: str) -> list[Any]:
        return [call(self._client, "GET", routes.RECORDS.format(topic=topic, partition=partition)) for partition in (0, 1)]

    def _kinds(self, pool: Pool) -> list[tuple[str, st.SearchStrategy[Any], Callable[[Any], None]]]:
        kinds: list[tuple[str, st.SearchStrategy[Any], Callable[[Any], None]]] = [
            (name, strategy, lambda sent: self._ask(tame(sent, pool, self._budget))) for name, strategy in native.strategies(pool).items()]
        kinds.append(("streams", native.streams(pool), lambda sent: self._ask(tame(sent, pool, self._budget))))
        kinds += [(name, strategy, self._ask) for name, strategy in older.strategies(pool).items()]
        framed = framings.strategy(routes.RECORDS.format(topic=pool.topics[0], partition=0))
        return kinds + [(f"framing at {port}", framed, lambda data, port=port: self._frame(port, data)) for port in self._ports]

    def _draw(self, strategy: st.SearchStrategy[Any], act: Callable[[Any], None], count: int, seed_: int, name: str) -> None:
        @seed(seed_)
        @settings(max_examples=count, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
        @given(drawn=strategy)
        def go(drawn: Any) -> None:
            act(drawn)

        go()

    def _ask(self, sent: Sent) -> None:
        sent = self._roster.named(sent)
        got = self._settled(sent) if sent.operation in ELECTIONS else self._client.ask(sent)
        self.report.answered(got)
        self._ledger.note(sent, got)
        self._roster.note(got)
        for sentence in self._rules.broken(sent, got):
            self.report.find(f"{sent.operation}: {got.status}: {sentence}", f"{sent.as_curl()}\n    → {got.status} {got.body[:400]!r}")

    def _settled(self, sent: Sent) -> Got:
        """The answer to what holds an election. One right behind another is told to come again, until the replicas follow the new leader."""
        end, answers = time.monotonic() + ANSWER_SECONDS_MAX, list[Got]()

        def is_settled() -> bool:
            answers.append(self._client.ask(sent))
            return answers[-1].status != 503 or time.monotonic() > end

        wait_until(is_settled, what="an election", timeout_seconds=2 * ANSWER_SECONDS_MAX)
        return answers[-1]

    def _frame(self, port: int, data: bytes) -> None:
        answers, fault = exchange(port, data)
        sent = Sent(FRAMING, "framing", "POST", "")
        for got in answers:
            self._ledger.note(sent, got)
            for sentence in self._rules.broken(sent, got):
                self.report.find(f"framing: {got.status}: {sentence}", f"{data[:400]!r} to port {port}\n    → {got.status} {got.body[:400]!r}")
        if fault is not None:
            self.report.find(f"framing: {fault[:60]}", f"{data[:400]!r} to port {port}: {fault}")
        self.report.answered(answers[-1] if answers else Got(0, {}, b"", 0.0))

    def _look(self, pool: Pool) -> None:
        """Whether every topic holds just what was accepted; what the requests made goes."""
        there = [topic for topic in topics_of(self._client) if topic not in self._others and topic != f"{self._name}.untouched"]
        for difference in self._ledger.differences(self._client, there):
            self.report.find("messages: not just what was accepted", difference)
        self.report.accepted = max(self.report.accepted, self._ledger.total)
        for topic in there:
            if topic not in pool.topics:
                delete(self._client, topic)
                self._ledger.forget(topic)


def run_on(cluster: Cluster, *, requests: int, seed: int, say: Callable[[str], Any] = no_words) -> Report:
    """A run on a cluster of one's own, with a look behind its face too: databases, processes and logs."""
    nodes = {node["name"]: node for node in cluster.status()["nodes"]}
    ports = tuple(int(nodes[name]["url"].rpartition(":")[2]) for name in ("balancer", "manager-1", "broker-1"))
    schemas, pids = schemas_of(cluster), {name: node["pid"] for name, node in nodes.items()}
    report = Run(ports, seed=seed, say=say).do(requests)
    for name, schema in schemas_of(cluster).items():
        if schema != schemas.get(name):
            report.find(f"{name}: the database's schema has changed", str(set(schema) ^ set(schemas.get(name, ())))[:600])
    for node in cluster.status()["nodes"]:
        if node["pid"] != pids.get(node["name"]) or not node["ready"]:
            report.find(f"{node['name']} was restarted or is not ready", str(node))
        for line in faults_in(cluster.logs(node["name"], 100_000)):
            report.find(f"{node['name']}: a fault in its log", line[:1_500])
    return report


def faults_in(lines: list[str]) -> list[str]:
    """The lines of a node's log that speak of a fault in the server."""
    found = []
    for line in lines:
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if isinstance(told, dict) and told.get("level") in ("ERROR", "CRITICAL", "error", "critical"):
            found.append(line)
    return found


