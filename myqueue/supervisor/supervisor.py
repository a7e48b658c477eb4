"""The one process that owns all processes of a cluster. One thread, one loop; it knows nothing of what its nodes do.

Order: nodes start stage by stage and end in the opposite order, each stage all at once. A node that dies by itself is
started again after a back-off; one that was stopped or killed on purpose stays down.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..clock import Clock
from ..errors import ConfigurationError
from .control import ControlServer
from .folder import DataFolder
from .node import DONE, DOWN, Node
from .plan import NodeSpec

TICK_SECONDS = 0.2
STARTING, RUNNING, STOPPING, STOPPED = "starting", "running", "stopping", "stopped"
_log = logging.getLogger("myqueue.supervisor")


class Supervisor:
    """Runs a plan until it is told to end.

    Args:
        attached_to: a file descriptor whose end-of-file means that our starter is gone, and we should end too; None for
            a supervisor that lives on by itself.
    """

    def __init__(self, specs: Sequence[NodeSpec], folder: DataFolder, clock: Clock, *, project: Path,
                 environment: Mapping[str, str] = os.environ, attached_to: int | None = None) -> None:
        self.phase = STARTING
        self._folder, self._clock, self._attached_to = folder, clock, attached_to
        self._project, self._environment = project, environment
        self._nodes = {spec.name: self._new_node(spec) for spec in specs}
        self._growing: list[list[Node]] = []  # stage by stage, the first one is started
        self._dropped: list[Node] = []  # of a growth that failed: killed, not gone yet
        self._growth_failure: str | None = None  # the node by which the last growth did not succeed
        self._stages = sorted({spec.stage for spec in specs})
        self._stage = self._stages[0]
        self._failed = False
        self._lasting = True  # False: the data are deleted once everything has ended

    def run(self) -> int:
        """Own the folder, start everything, watch it, end everything; 0 if that was wished, 1 if the start failed."""
        with self._folder.supervised(), selectors.DefaultSelector() as selector:
            self._wake_on_signals(selector)
            if self._attached_to is not None:
                selector.register(self._attached_to, selectors.EVENT_READ, self._starter_said)
            control = ControlServer(selector, self._clock, self._answer)
            self._folder.failure_file.unlink(missing_ok=True)
            self._keep_ports()
            control.announce(self._folder)
            self._start_stage()
            try:
                while self.phase != STOPPED:
                    for key, _ in selector.select(TICK_SECONDS):
                        key.data()
                    control.drop_idle()
                    self._tick()
            finally:
                for node in self._nodes.values():
                    node.kill()
                self._folder.control_file.unlink(missing_ok=True)
                control.close()
                self._folder.keeper.let_go()
        return 1 if self._failed else 0

    def _keep_ports(self) -> None:
        """For nodes that are down: what else starts on this machine meanwhile picks other ports."""
        saved = self._folder.load()
        if saved is not None:
            self._folder.keeper.keep([*saved.ports.values(), *saved.balancer_ports])

    # --- what is asked for ---

    def _answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        command = request.get("command")
        if command == "down":
            self._lasting = self._lasting and request.get("lasting", True) is True
            self._end()
        elif command in ("start", "stop", "kill", "pause", "resume"):
            if self.phase != RUNNING:
                raise ConfigurationError(f"the cluster is {self.phase}")
            node = self._node(request.get("node"))
            if command == "start":
                node.start(request.get("environment"))
            else:
                getattr(node, command)()
            _log.info("%s: %s on request", node.spec.name, command)
        elif command == "grow":
            try:
                specs = [NodeSpec.from_json(spec) for spec in request["nodes"]]
            except (KeyError, TypeError):
                raise ConfigurationError("the new nodes' plan cannot be read: the supervisor may be of another version: restart it") from None
            self._grow(specs)
        elif command != "status":
            raise ConfigurationError(f"there is no command {command!r}")
        return {"phase": self.phase, "pid": os.getpid(), "nodes": [node.to_json() for node in self._nodes.values()],
                "is_growing": bool(self._growing or self._dropped), "growth_failure": self._growth_failure}

    def _node(self, name: object) -> Node:
        node = self._nodes.get(str(name))
        if node is None or node.spec.once:
            names = ", ".join(node.spec.name for node in self._nodes.values() if not node.spec.once)
            raise ConfigurationError(f"there is no node {name!r}: there are {names}")
        return node

    def _new_node(self, spec: NodeSpec) -> Node:
        return Node(spec, self._clock, folder=self._project, environment=self._environment)

    # --- more nodes ---

    def _grow(self, specs: Sequence[NodeSpec]) -> None:
        """Start nodes that were not in the plan, stage by stage; a job that has ended, well or not, is done again with another spec."""
        if self.phase != RUNNING or self._growing or self._dropped:
            raise ConfigurationError(f"the cluster is {self.phase if self.phase != RUNNING else 'growing'}")
        for spec in specs:
            known = self._nodes.get(spec.name)
            if known is not None and not (spec.once and known.state in (DONE, DOWN)):
                raise ConfigurationError(f"there is a node {spec.name} already")
        self._growth_failure = None
        self._keep_ports()
        nodes = [self._new_node(spec) for spec in specs]
        self._nodes.update({node.spec.name: node for node in nodes})
        self._growing = [[node for node in nodes if node.spec.stage == stage] for stage in sorted({spec.stage for spec in specs})]
        self._start(self._growing[0])

    def _continue_growth(self) -> None:
        group = self._growing[0]
        failed = next((node for node in group if node.exits), None)
        if failed is not None:
            self._growth_failure = failed.spec.name
            _log.error("%s failed: nothing is added", failed.spec.name)
            nodes, self._growing = [node for group in self._growing for node in group], []
            for node in nodes:
                node.kill()
            self._dropped = [node for node in nodes if not node.spec.once]
        elif all(node.is_ready() for node in group):
            del self._growing[0]
            if self._growing:
                self._start(self._growing[0])

    def _starter_said(self) -> None:
        if not os.read(self._attached_to or 0, 1_024):
            _log.info("the starter is gone: ending")
            self._end()

    def _wake_on_signals(self, selector: selectors.BaseSelector) -> None:
        """SIGTERM and SIGINT end everything cleanly; a child's death is noticed at once."""
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
        signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        selector.register(ours, selectors.EVENT_READ, lambda: ours.recv(4_096))
        self._wakeup = theirs  # kept open
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self._end())

    # --- what time brings ---

    def _tick(self) -> None:
        for name, node in self._nodes.items():
            said = node.tick()
            if said:
                _log.info("%s: %s", name, said)
        for node in [node for node in self._dropped if node.state == DOWN]:
            self._dropped.remove(node)
            del self._nodes[node.spec.name]
        if self.phase == RUNNING and self._growing:
            self._continue_growth()
        elif self.phase == STARTING:
            self._advance()
        elif self.phase == STOPPING:
            self._recede()

    def _advance(self) -> None:
        """To the next stage once all of this one is ready. The last stage's nodes may die and live again: their readiness is asked over HTTP."""
        nodes = self._at(self._stage)
        if self._stage == self._stages[-1]:
            self.phase = RUNNING
            return
        for node in nodes:
            if node.exits:
                self._failed = True
                self._folder.failure_file.write_text(json.dumps({"node": node.spec.name, "code": node.last_exit_code}))
                _log.error("%s failed: ending everything", node.spec.name)
                self._end()
                return
        if all(node.is_ready() for node in nodes):
            self._stage = self._stages[self._stages.index(self._stage) + 1]
            self._start_stage()

    def _start_stage(self) -> None:
        self._start(self._at(self._stage))

    @staticmethod
    def _start(nodes: Sequence[Node]) -> None:
        for node in nodes:
            node.start()
            _log.info("%s: started as pid %s", node.spec.name, node.pid)

    def _end(self) -> None:
        if self.phase in (STARTING, RUNNING):
            self.phase, self._stage = STOPPING, self._stages[-1]
            self._stop_stage()

    def _recede(self) -> None:
        if any(node.state not in (DOWN, DONE) for node in self._at(self._stage)):
            return
        place = self._stages.index(self._stage)
        if place == 0:
            self.phase = STOPPED
            return
        self._stage = self._stages[place - 1]
        self._stop_stage()

    def _stop_stage(self) -> None:
        for node in self._at(self._stage):
            node.stop(lasting=self._lasting)

    def _at(self, stage: int) -> list[Node]:
        return [node for node in self._nodes.values() if node.spec.stage == stage]
