"""The rehearsal: a cluster on simulated machines is made, used, hurt, grown, shrunk and upgraded, and every acknowledged message is looked for.

``scripts/rehearse`` starts it in namespaces of its own, after it has made the root that all machines share.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from myqueue import MyConsumer, MyProducer
from myqueue.cli import workload
from myqueue.client.admin import AdminClient
from tests.support.load import QueueFaceLoad, SdkLoad
from tests.support.machines.cluster import MachineCluster
from tests.support.machines.lab import Lab, Machine
from tests.support.waiting import wait_until

PROJECT = Path(__file__).resolve().parents[3]
SAMPLE = PROJECT / "scripts" / "sample"
CUT_SECONDS = 8.0
DRAIN_SECONDS = 180.0
SPARK_SECONDS = 300
UNITS = "/etc/systemd/system/myqueue-*.service"


class Rehearsal:
    """One run over one cluster. ``figures`` says what was measured, ``faults`` what was wrong."""

    def __init__(self, cluster: MachineCluster, *, upgrade: Path, out: Path) -> None:
        self._cluster, self._upgrade, self._out = cluster, upgrade, out
        self.figures: dict[str, object] = {}
        self.faults: list[str] = []

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        print(f"rehearse: {what} …", flush=True)
        yield
        self.figures[what] = f"{time.monotonic() - began:.1f} s"
        print(f"rehearse: {what}: {self.figures[what]}", flush=True)

    def run(self) -> None:
        cluster = self._cluster
        cut_short = cluster.provision_cut_short(cluster.machines[0])
        self.figures["times that a provisioning was killed before it got to its end"] = cut_short
        with self.timed(f"{len(cluster.machines)} machines provisioned, started and ready"):
            cluster.start()
        brokers = len(cluster.broker_machines)
        cluster.wait_until_alive(brokers)
        self.check_machines()
        with self.timed("the main job through the balancer"):
            self.main_job()
        with self.under_load("a broker's machine cut off and back"):
            cluster.broker_machines[0].unplug()
            time.sleep(CUT_SECONDS)  # the fault's own length, nothing is waited for
            cluster.broker_machines[0].plug()
            cluster.wait_until_alive(brokers)
        with self.under_load("a machine switched off and on again"):
            self.power_cycle(brokers)
        with self.under_load("a broker added"):
            cluster.add_broker()
            cluster.wait_until_alive(brokers + 1)
        with self.under_load("a broker drained and removed"):
            self.drain_and_remove_broker(brokers)
        with self.under_load("a broker added, switched off and removed"):
            self.remove_broker_that_is_off(brokers)
        with self.under_load("every machine upgraded, one after the other"):
            self.upgrade_all(brokers)
        with self.timed("the audit of all topics by Spark"):
            self.audit()

    def check_machines(self) -> None:
        """Repeating changes nothing; ``--check`` agrees; systemd accepts the units; nobody but root reads a secret."""
        for machine in self._cluster.machines:
            said = self._cluster.provision(machine, self._cluster.source)
            if "node: done: 0 changes" not in said:
                self.faults.append(f"{machine}: a second run changed something:\n{said}")
            self._cluster.provision(machine, self._cluster.source, check=True)
            machine.sh(f"systemd-analyze verify --man=no {UNITS}")
            readable = machine.sh("find /etc/myqueue -type f -perm /077")
            if readable:
                self.faults.append(f"{machine}: readable by others: {readable}")
        self.figures["units that systemd-analyze verifies"] = sum(
            int(machine.sh(f"ls {UNITS} | wc -l")) for machine in self._cluster.machines)

    def main_job(self) -> None:
        """Five producers' files at once, two consumers a topic, every line once and in its producer's order."""
        sources = workload.read_sources(sorted(SAMPLE.glob("*.txt")) + sorted(SAMPLE.glob("*.log")))
        expected = workload.counts(sources)
        bootstrap, token = self._cluster.bootstraps.split(","), self._cluster.token

        def send(source: workload.Source) -> None:
            with MyProducer(topics=sorted({line.topic for line in source.lines}), broker=bootstrap, token=token) as producer:
                for line in source.lines:
                    producer.send(line.topic, line.value, headers=((workload.SOURCE, source.name.encode()), (workload.LINE, b"%d" % line.number)))

        def receive(topic: str) -> list[str]:
            messages = []
            with MyConsumer(topics=[topic], broker=bootstrap, token=token) as consumer:
                for message in consumer.get_next(timeout_seconds=30):
                    messages.append(message)
                    if len(messages) == expected[topic]:
                        break
            return workload.check_received(topic, sources, messages)

        with AdminClient(bootstrap, token=token) as admin:
            for topic in expected:
                admin.create_topic(topic)  # one partition: one order
        with ThreadPoolExecutor(16) as pool:
            sending = [pool.submit(send, source) for source in sources]
            receiving = [pool.submit(receive, topic) for topic in expected for _ in range(2)]
            for sent in sending:
                sent.result()
            self.faults += [fault for received in receiving for fault in received.result()]
        self.figures["messages of the main job"] = sum(expected.values())

    @contextmanager
    def under_load(self, what: str) -> Iterator[None]:
        """Both faces write and read all the while; afterwards nothing acknowledged may be missing, nothing be there twice."""
        name = "".join(character if character.isalnum() else "-" for character in what)
        with AdminClient(self._cluster.bootstraps.split(","), token=self._cluster.token) as admin:
            for topic in (f"sdk-{name}", f"http-{name}"):
                admin.create_topic(topic, partitions=3)
        sdk = SdkLoad(self._cluster.bootstrap(1), f"sdk-{name}", token=self._cluster.token)
        http = QueueFaceLoad(f"http://{self._cluster.bootstrap(2)}", f"http-{name}", token=self._cluster.token)
        wait_until(lambda: sdk.received and http.acknowledged, timeout_seconds=30, what="the load to run")
        with self.timed(what):
            yield
        before = len(http.acknowledged)
        wait_until(lambda: len(http.acknowledged) > before, timeout_seconds=30, what="the load to go on")
        http.finish()
        sdk.finish()
        self.faults += sdk.faults() + http.faults()
        self.figures[f"{what}: acknowledged"] = (f"{sdk.sent} by the SDK, {len(http.acknowledged)} by HTTP "
                                                 f"({len(http.unknown)} unknown, {len(http.refused)} refused there)")

    def power_cycle(self, brokers: int) -> None:
        machine = self._cluster.broker_machines[1] if len(self._cluster.machines) > 3 else self._cluster.machines[0]
        machine.power_off()
        wait_until(lambda: "alive" in self._cluster.states()["managers"] and self._cluster.states()["brokers"].count("alive") < brokers,
                   timeout_seconds=60, what="the cluster to notice", interval_seconds=0.25)
        machine.power_on()
        machine.start_services()
        self._cluster.wait_until_ready(machine)
        self._cluster.wait_until_alive(brokers)

    def drain_and_remove_broker(self, brokers: int) -> None:
        """The new broker took partitions: the removal is cut short, run again, and ends when the others have them; then its machine goes off."""
        cluster, machine = self._cluster, self._cluster.broker_machines[-1]
        cluster.call("POST", "/topics", topic="spread", partitions=2 * (brokers + 1))
        cluster.call("POST", "/topics", topic="spread-alone", partitions=2 * (brokers + 1), replication_factor=1)
        held = self.held_by(machine)
        self.figures["partitions of new topics on the new broker"] = held
        if not held:
            self.faults.append("the new broker got no partition of a new topic")
        cut_short = cluster.remove_broker(machine, timeout_seconds=0)
        if cut_short.returncode != 1 or "run it again" not in cut_short.stderr:
            self.faults.append(f"a removal that was cut short ended with {cut_short.returncode}: {cut_short.stderr}")
        self.remove(machine, brokers)
        machine.power_off()

    def remove_broker_that_is_off(self, brokers: int) -> None:
        """A broker's machine is gone: refused while it has the only copy of something, then replaced by the others and removed."""
        cluster = self._cluster
        machine = cluster.add_broker()
        cluster.wait_until_alive(brokers + 1)
        cluster.call("POST", "/topics", topic="only-there", partitions=2 * (brokers + 1), replication_factor=1)
        cluster.call("POST", "/topics", topic="there-too", partitions=2 * (brokers + 1))
        machine.power_off()
        wait_until(lambda: "dead" in cluster.states()["brokers"], timeout_seconds=60, what="the broker to be held for dead", interval_seconds=0.25)
        refused = cluster.remove_broker(machine, timeout_seconds=DRAIN_SECONDS)
        if refused.returncode != 1 or "would lose" not in refused.stderr:
            self.faults.append(f"a broker with the only copy of something is not refused: {refused.returncode}: {refused.stderr}")
        self.figures["removal of a broker with the only copy of something"] = "refused, nothing lost"
        cluster.call("DELETE", "/v1/topics/only-there").raise_for_status()
        self.remove(machine, brokers)

    def held_by(self, machine: Machine) -> int:
        return sum(broker["partitions"] for broker in self._cluster.call("GET", "/broker").json()["brokers"] if broker["host"] == machine.address)

    def remove(self, machine: Machine, brokers: int) -> None:
        """Drain it, take it out; the others are left."""
        cluster = self._cluster
        done = cluster.remove_broker(machine, timeout_seconds=DRAIN_SECONDS)
        if done.returncode:
            self.faults.append(f"{machine} is not removed: {done.stderr}")
        cluster.broker_machines.remove(machine)
        wait_until(lambda: len(cluster.call("GET", "/broker").json()["brokers"]) == brokers, timeout_seconds=30, what="the broker to be gone")

    def upgrade_all(self, brokers: int) -> None:
        """Node by node: the newer code, then the services anew, then ready, then the next."""
        began = self._cluster.machines[0].sh("readlink /opt/myqueue/current")
        for machine in list(self._cluster.machines):
            self._cluster.provision(machine, self._upgrade)
            machine.start_services()
            self._cluster.wait_until_ready(machine)
        self._cluster.source = self._upgrade
        if self._cluster.machines[0].sh("readlink /opt/myqueue/current") == began:
            self.faults.append("the upgrade changed no code")
        self._cluster.wait_until_alive(brokers)

    def audit(self) -> None:
        """Exit code 0 is clean; a message in two places or a broken chain would be a finding."""
        pgpass = self._out / "pgpass"
        pgpass.touch(0o600)
        pgpass.write_text(f"*:*:*:myqueue_reader:{(self._out / 'secrets' / 'reader').read_text()}\n")
        command = [PROJECT / "scripts" / "spark-submit", "audit", "--bootstrap", self._cluster.bootstrap(), "--out", self._out / "audit"]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=SPARK_SECONDS, check=False,
                              env={**os.environ, "PGPASSFILE": str(pgpass), "MYQUEUE_TOKEN": self._cluster.token})
        if done.returncode:
            self.faults.append(f"the audit ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-2000:]}")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--before", type=Path, required=True, help="the tree of the earlier commit")
    parser.add_argument("--after", type=Path, required=True, help="the tree that is upgraded to")
    parser.add_argument("--backup", action="store_true", help="rehearse backups and restores instead")
    parser.add_argument("--machines", type=int, choices=(3, 6), default=3)
    arguments = parser.parse_args(argv)
    subprocess.run([PROJECT / "scripts" / "provision" / "new-secrets", arguments.work / "secrets"], check=True, timeout=20)
    cluster = MachineCluster(Lab(arguments.base, arguments.work), arguments.before, arguments.work / "secrets", apart=arguments.machines == 6)
    from tests.support.machines.going_back import GoingBack  # built on this module

    rehearsal = (GoingBack if arguments.backup else Rehearsal)(cluster, upgrade=arguments.after, out=arguments.work)
    try:
        rehearsal.run()
    except BaseException:
        print(cluster.logs(), file=sys.stderr)
        raise
    return report(rehearsal, print)


def report(rehearsal: Rehearsal, show: Callable[[str], object]) -> int:
    for what, figure in rehearsal.figures.items():
        show(f"  {what:70} {figure}")
    for fault in rehearsal.faults:
        show(f"  FAULT: {fault}")
    if not rehearsal.faults:
        show("rehearse: nothing lost")
    return 1 if rehearsal.faults else 0  # scripts/rehearse says FAILED, however it failed


if __name__ == "__main__":
    sys.exit(main())
