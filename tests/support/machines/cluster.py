"""A MyQueue cluster on simulated machines, made by the project's own provisioning and by nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests

from tests.support.machines.lab import NETWORK, Lab, Machine
from tests.support.waiting import wait_until

SOURCE = "/srv/myqueue"  # where the project's copy lies on a machine
SECRETS = "/run/secrets-of-the-cluster"
READY_SECONDS = 90.0
CUT_SHORT_STEP_SECONDS = 0.25
OWN_SETTING = "MYQUEUE_MANAGER_ELECTION_TIMEOUT_SECONDS=3"
BALANCER_PORT, MANAGER_PORT, BROKER_PORT = 9092, 9094, 9095


class MachineCluster:
    """Managers and balancers on three machines, brokers on the same ones or on three others.

    Args:
        source: the tree of the project that is installed first.
    """

    def __init__(self, lab: Lab, source: Path, secrets: Path, *, apart: bool) -> None:
        self._lab, self._secrets = lab, secrets
        self.token = (secrets / "token").read_text()
        machines = [lab.add() for _ in range(6 if apart else 3)]
        self.manager_machines = machines[:3]
        self.broker_machines = machines[3:] if apart else machines[:3]
        self.source = source
        self._session = requests.Session()
        self._session.headers["Authorization"] = f"Bearer {self.token}"

    @property
    def machines(self) -> list[Machine]:
        return [*self.manager_machines, *(machine for machine in self.broker_machines if machine not in self.manager_machines)]

    def bootstrap(self, machine: int = 0) -> str:
        """A balancer's address; there is one on each manager's machine."""
        return f"{self.manager_machines[machine].address}:{BALANCER_PORT}"

    @property
    def bootstraps(self) -> str:
        return ",".join(self.bootstrap(number) for number in range(len(self.manager_machines)))

    def provision_cut_short(self, machine: Machine) -> int:
        """Run node.sh, cut short; how often it was killed."""
        self._put(self.source, machine)
        return self.cut_short(machine, self.command(machine))

    @staticmethod
    def cut_short(machine: Machine, command: str) -> int:
        """Run a command and kill it with all that it started, a little later each time, until it gets to its end; how often it was killed."""
        seconds, killed = CUT_SHORT_STEP_SECONDS, 0
        while machine.code_of(f"timeout -s KILL {seconds:.2f} {command}"):
            seconds, killed = seconds + max(CUT_SHORT_STEP_SECONDS, seconds / 8), killed + 1
            assert seconds < READY_SECONDS, machine.sh(command)
        return killed

    def _put(self, source: Path, machine: Machine) -> None:
        """What node.sh needs; and a setting of one's own, since here all machines share the cores of one."""
        machine.put(source, SOURCE)
        machine.put(self._secrets, SECRETS)
        if machine in self.manager_machines:
            machine.sh(f"mkdir -p /etc/myqueue && echo {OWN_SETTING} >/etc/myqueue/manager.local.env && chmod 600 /etc/myqueue/manager.local.env")

    def provision(self, machine: Machine, source: Path, *, check: bool = False) -> str:
        """Run node.sh of ``source`` on a machine; what it said."""
        self._put(source, machine)
        return machine.sh(f"{self.command(machine)} {'--check' if check else ''} 2>&1")

    def command(self, machine: Machine) -> str:
        roles = [*(["manager", "balancer"] if machine in self.manager_machines else []), *(["broker"] if machine in self.broker_machines else [])]
        number = self.broker_machines.index(machine) + 1 if machine in self.broker_machines else 1
        managers = ",".join(one.address for one in self.manager_machines)
        return (f"{SOURCE}/scripts/provision/node.sh --role {','.join(roles)} --number {number} --address {machine.address} --managers {managers} "
                f"--secrets {SECRETS} --allow {NETWORK}.0/24 --archive /var/lib/myqueue-wal")

    def start(self) -> None:
        """Provision all machines at once and start them; ready when every manager, broker and balancer is."""
        with ThreadPoolExecutor(len(self.machines)) as pool:
            list(pool.map(lambda machine: self.provision(machine, self.source), self.machines))
            list(pool.map(Machine.start_services, self.machines))
        for machine in self.machines:
            self.wait_until_ready(machine)

    def add_broker(self) -> Machine:
        """A machine more, made a broker."""
        machine = self._lab.add()
        self.broker_machines.append(machine)
        self.provision(machine, self.source)
        machine.start_services()
        self.wait_until_ready(machine)
        return machine

    def wait_until_ready(self, machine: Machine) -> None:
        ports = [*([MANAGER_PORT, BALANCER_PORT] if machine in self.manager_machines else []),
                 *([BROKER_PORT] if machine in self.broker_machines else [])]
        for port in ports:
            wait_until(lambda port=port: self.is_ready(machine, port), timeout_seconds=READY_SECONDS, what=f"{machine}:{port} to be ready",
                       interval_seconds=0.1)

    def is_ready(self, machine: Machine, port: int) -> bool:
        try:
            return self._session.get(f"http://{machine.address}:{port}/readyz", timeout=2).status_code == 200
        except requests.RequestException:
            return False

    def remove_broker(self, machine: Machine, *, timeout_seconds: float) -> subprocess.CompletedProcess[str]:
        """Run remove_broker.py on the operator's machine."""
        script = self.source / "scripts" / "provision" / "remove_broker.py"
        words = ["--bootstrap", self.bootstrap(), "--host", machine.address, "--timeout-seconds", str(timeout_seconds)]
        return subprocess.run([sys.executable, script, *words], env={**os.environ, "MYQUEUE_TOKEN": self.token}, capture_output=True, text=True,
                              timeout=timeout_seconds + 60, check=False)

    def call(self, method: str, path: str, **arguments: object) -> requests.Response:
        """A call of the queue face at the first balancer that answers."""
        for number in range(len(self.manager_machines)):
            try:
                return self._session.request(method, f"http://{self.bootstrap(number)}{path}", json=arguments or None, timeout=15)
            except requests.ConnectionError:
                continue
        raise AssertionError("no balancer answers")

    def states(self) -> dict[str, list[str]]:
        """What the cluster says of its brokers and managers."""
        health = self.call("GET", "/health").json()
        return {kind: [actor["state"] for actor in health[kind]] for kind in ("brokers", "managers")}

    def wait_until_alive(self, brokers: int) -> None:
        alive = {"brokers": ["alive"] * brokers, "managers": ["alive"] * len(self.manager_machines)}
        wait_until(lambda: self.states() == alive, timeout_seconds=READY_SECONDS, what=f"{brokers} brokers and all managers to be alive",
                   interval_seconds=0.25)

    def logs(self) -> str:
        """The end of every log, for a failure's report."""
        found = []
        for machine in self.machines:
            if machine.is_on:
                try:
                    found.append(f"--- {machine}\n{machine.sh('tail -n 15 /var/log/myqueue-*.log 2>/dev/null || true')}")
                except (AssertionError, subprocess.TimeoutExpired) as error:
                    found.append(f"--- {machine}: {error}")
        return "\n".join(found)
