"""The rehearsal of backups: a whole cluster goes back to a moment, and one machine alone gets an old copy of its disk."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from myqueue import MyConsumer, MyProducer
from myqueue.client.admin import AdminClient
from tests.support.machines.cluster import SOURCE
from tests.support.machines.rehearse import Rehearsal
from tests.support.waiting import wait_until

TOPIC = "kept"
BATCH = 2_000
QUIET_SECONDS = 3.0
WHOLE_SECONDS = 120.0
BACKUP, WAL = "/var/backups/myqueue", "/var/lib/myqueue-wal"
DISK = """runuser -u postgres -- psql -XAtq -d myqueue_broker_{number} -c 'SELECT disk_id FROM broker_identity'"""


class GoingBack(Rehearsal):
    """Backups while the cluster works; a point in time; an old copy of one disk."""

    def run(self) -> None:
        cluster = self._cluster
        with self.timed(f"{len(cluster.machines)} machines provisioned, started and ready"):
            cluster.start()
        brokers = len(cluster.broker_machines)
        cluster.wait_until_alive(brokers)
        with AdminClient(cluster.bootstraps.split(","), token=cluster.token) as admin:
            admin.create_topic(TOPIC, partitions=3)
        before = self.produce("before the backup")
        with self.timed("all machines backed up"), ThreadPoolExecutor(len(cluster.machines)) as pool:
            list(pool.map(lambda machine: machine.sh(f"{SOURCE}/scripts/provision/backup {BACKUP} 2>&1"), cluster.machines))
        after = self.produce("after the backup")
        time.sleep(QUIET_SECONDS / 2)  # the quiet around the moment that is gone back to
        moment = time.strftime("%Y-%m-%d %H:%M:%S+00", time.gmtime())
        time.sleep(QUIET_SECONDS / 2 + 1)
        self.produce("after the moment")
        with self.timed("the whole cluster restored to a moment"):
            self.restore_all(moment)
        cluster.wait_until_alive(brokers)
        self.compare(sorted(before + after))
        with self.timed("the audit of all topics by Spark"):
            self.audit()
        again = self.produce("after the restore")
        self.compare(sorted(before + after + again))
        self.restore_one(sorted(before + after + again))

    def produce(self, name: str) -> list[bytes]:
        values = [f"{name} {number}".encode() for number in range(BATCH)]
        with MyProducer(topics=[TOPIC], broker=self._cluster.bootstraps.split(","), token=self._cluster.token) as producer:
            for number, value in enumerate(values):
                producer.send(TOPIC, value, key=b"%d" % (number % 17))
        return values

    def compare(self, expected: list[bytes]) -> None:
        """Everything once, nothing else."""
        with MyConsumer(topics=[TOPIC], broker=self._cluster.bootstraps.split(","), token=self._cluster.token) as consumer:
            seen = sorted(message.value for message in consumer.get_next(timeout_seconds=4))
        if expected != seen:
            strange, lost = set(seen) - set(expected), set(expected) - set(seen)
            self.faults.append(f"{len(expected)} messages were due and {len(seen)} came: lost {sorted(lost)[:3]}, strange {sorted(strange)[:3]}")
        self.figures[f"messages after going back ({len(expected)} due)"] = len(seen)

    def restore_all(self, moment: str) -> None:
        machines = self._cluster.machines
        command = f"{SOURCE}/scripts/provision/backup --restore {BACKUP} --archive {WAL} --to '{moment}' --whole-cluster 2>&1"
        with ThreadPoolExecutor(len(machines)) as pool:
            list(pool.map(lambda machine: machine.stop_services(), machines))
            list(pool.map(lambda machine: machine.sh(command), machines))
            list(pool.map(lambda machine: machine.start_services(), machines))
        for machine in machines:
            self._cluster.wait_until_ready(machine)

    def restore_one(self, expected: list[bytes]) -> None:
        """It must be another disk afterwards: with what it has forgotten it may not count."""
        machine = self._cluster.broker_machines[-1]
        disk = DISK.format(number=len(self._cluster.broker_machines))
        known = machine.sh(disk)
        machine.stop_services()
        machine.sh("rm -rf /var/lib/postgresql/*/myqueue.before-restore")
        with self.timed("one machine restored alone"):
            killed = self._cluster.cut_short(machine, f"{SOURCE}/scripts/provision/backup --restore {BACKUP}")
        self.figures["times that a restore was killed before it got to its end"] = killed
        if machine.sh(disk) == known:
            self.faults.append("a machine that was restored alone kept the identity of its disk")
        self.figures["identity after a restore alone"] = "a new disk"
        with self.timed("the restored machine back among the others"):
            machine.start_services()
            self._cluster.wait_until_ready(machine)
            self._cluster.wait_until_alive(len(self._cluster.broker_machines))
            wait_until(self.is_whole, timeout_seconds=WHOLE_SECONDS, what="every partition to have all its replicas", interval_seconds=0.5)
        self.compare(expected)

    def is_whole(self) -> bool:
        """Every manager votes, and no partition has fewer replicas than wanted."""
        partitions = self._cluster.call("GET", "/v1/health").json()["partitions"]
        members = self._cluster.call("GET", "/v1/managers").json()["managers"]
        return all(member["voter"] for member in members) and not any(
            partitions[trouble]["count"] for trouble in ("leaderless", "under_replicated", "without_majority"))
