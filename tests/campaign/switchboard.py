"""Every connection between nodes, and from the clients to nodes, goes through a relay here, which can be cut, slowed and broken by name.

A relay stands before each node's port; the node that calls is found by the process that owns the other end of the connection. What
is cut in one direction holds the bytes that go that way, of requests and of answers; when the cut is over they arrive, late, as they
would from a network. Connections to a node that is down are refused, as they are without a relay.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from myqueue.supervisor.plan import MARK
from myqueue.supervisor.ports import PortKeeper
from tests.campaign.schedule import ANYONE

T = TypeVar("T")
HOST = "127.0.0.1"
CHUNK_BYTES = 1 << 16
CHUNKS_UNDER_WAY_MAX = 64
POLL_SECONDS = 0.02
CALL_SECONDS = 10.0
CLOSE_SECONDS = 0.05
SETTLED_SECONDS = 1.0
NO_INODE = 0
CLIENTS = "clients"
CUT, SLOW, LOSE_REPLY, RESET_IN_REPLY = "cut", "slow", "lose reply", "reset in reply"
ABORT = struct.pack("ii", 1, 0)  # SO_LINGER: close by a reset
# linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, NLMSG_ERROR = 4, 20, 1, 2
NETLINK_HEAD = struct.Struct("=IHHII")  # length, type, flags, sequence, port
ALL_STATES, NO_COOKIE = 0xFFFFFFFF, (0xFFFFFFFF, 0xFFFFFFFF)
INODE_AT = 68  # in inet_diag_msg


@dataclass(eq=False)
class Rule:
    """What happens to bytes that go from ``source`` to ``target``; for replies, to those of calls from ``source`` to ``target``.

    A reply is lost, or reset, once per ``every`` replies while the rule holds.
    """

    action: str
    source: str
    target: str
    delay_seconds: float = 0.0
    every: int = 3
    seen: int = 0

    def is_about(self, source: str, target: str) -> bool:
        return self.source in (ANYONE, source) and self.target in (ANYONE, target)


@dataclass
class _Relay:
    """One node's port as the others see it."""

    name: str
    target_port: int
    port: int
    server: asyncio.Server | None = None
    links: set[_Link] = field(default_factory=set)


class Switchboard:
    """All relays, on an event loop in a thread of its own. Its methods may be called from any thread."""

    def __init__(self, clients_pid: int | None = None) -> None:
        """
        Args:
            clients_pid: the process of the clients; this one by default.
        """
        self._relays: dict[str, _Relay] = {}
        self._rules: list[Rule] = []
        self._owners = _Owners(clients_pid or os.getpid())
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_ending = False
        self._keeper = PortKeeper()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="switchboard", daemon=True)
        self._thread.start()

    # --- relays ---

    def add(self, name: str, target_port: int) -> int:
        """Put a relay before a node's port; the port to call instead."""
        relay = _Relay(name, target_port, self._keeper.pick())
        self._run(self._open(relay))
        self._relays[name] = relay
        return relay.port

    def refuse(self, name: str) -> None:
        """The node is down: nobody listens any more, and what was open is reset."""
        if name in self._relays:
            self._run(self._close(self._relays[name]))

    def accept(self, name: str) -> None:
        """The node is started: listen again."""
        if name in self._relays and self._relays[name].server is None:
            self._run(self._open(self._relays[name]))

    def close(self) -> None:
        self._rules.clear()
        for relay in self._relays.values():
            self._run(self._close(relay))
        self._run(self._end_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS)
        self._loop.close()
        self._keeper.let_go()

    # --- rules ---

    def put(self, rule: Rule) -> Rule:
        """A rule holds from now on, for connections that are open too."""
        self._rules = [*self._rules, rule]
        return rule

    def lift(self, rule: Rule) -> None:
        self._rules = [one for one in self._rules if one is not rule]

    # --- inside the loop ---

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS)

    async def _open(self, relay: _Relay) -> None:
        relay.server = await self._loop.create_server(lambda: _Link(self, relay).caller, HOST, relay.port, backlog=1_024)

    async def _close(self, relay: _Relay) -> None:
        if relay.server is not None:
            server, relay.server = relay.server, None
            for listener in server.sockets:
                self._loop.remove_reader(listener.fileno())
            await asyncio.sleep(0)  # what was accepted just now becomes a connection first: asyncio loses it where the server is closed by then
            server.close()
        for link in list(relay.links):
            link.abort()

    async def _end_tasks(self) -> None:
        """Also of connections that were only just accepted."""
        self.is_ending = True
        while left := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(left, timeout=CLOSE_SECONDS)
        for relay in self._relays.values():
            for link in list(relay.links):
                link.abort()
        await asyncio.sleep(CLOSE_SECONDS)  # what was aborted is closed in the loop's next rounds

    # --- for the links ---

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def dial(self, relay: _Relay, link: _Link) -> None:
        """Call the node for who called its relay."""
        try:
            source = self._owners.of(link.caller.transport.get_extra_info("peername")[1], relay.port)
            await self.passable(source, relay.name)
            await self._loop.create_connection(lambda: link.node, HOST, relay.target_port)
        except OSError:  # nobody listens there, or the caller has gone: the other end learns it the same way
            link.abort()
        else:
            link.join(source, relay.name)

    def touches(self, way: _Way) -> bool:
        """Whether a rule is about what goes this way."""
        return any(rule.is_about(way.source, way.target) or (way.is_reply and rule.is_about(way.target, way.source)) for rule in self._rules)

    def what_is_left(self, way: _Way, chunk: bytes) -> bytes:
        """Of a reply, which may be lost or broken here."""
        for rule in self._rules:
            if way.is_reply and rule.action in (LOSE_REPLY, RESET_IN_REPLY) and rule.is_about(way.target, way.source):
                rule.seen += 1
                if rule.seen % rule.every == 0:
                    return b"" if rule.action == LOSE_REPLY else chunk[:len(chunk) // 2]
        return chunk

    def due(self, way: _Way) -> float:
        """When what is said now arrives at the other end of a link that may be slow, by the loop's clock."""
        return self._loop.time() + sum(rule.delay_seconds for rule in self._rules if rule.action == SLOW and rule.is_about(way.source, way.target))

    async def until(self, due: float) -> None:
        if (left := due - self._loop.time()) > 0:
            await asyncio.sleep(left)

    async def passable(self, source: str, target: str) -> None:
        """Wait as long as bytes from here to there are held."""
        while any(rule.action == CUT and rule.is_about(source, target) for rule in self._rules):
            await asyncio.sleep(POLL_SECONDS)


class _End(asyncio.Protocol):
    """The relay's socket to one of the two that speak; ``says`` is the way of what comes from there, ``hears`` of what goes there."""

    transport: asyncio.Transport
    says: _Way
    hears: _Way

    def __init__(self, link: _Link) -> None:
        self._link = link
        self.is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.is_open = transport, True
        self._link.opened(self)

    def data_received(self, data: bytes) -> None:
        self.says.take(data)

    def eof_received(self) -> bool:
        self.says.take(b"")
        return True  # the other way stays open

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._link.lost()

    def pause_writing(self) -> None:
        self.hears.is_full = True
        self.hears.steer()

    def resume_writing(self) -> None:
        self.hears.is_full = False
        self.hears.steer()

    def abort(self) -> None:
        """End it by a reset: whoever waits at the other end learns at once that no more will come."""
        if self.is_open:
            with contextlib.suppress(OSError):
                self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
            self.transport.abort()


class _Way:
    """One direction of a relayed connection.

    What no rule is about goes on at once; the rest waits here, in its order, for a task that passes it on.
    """

    def __init__(self, link: _Link, board: Switchboard, start: _End, end: _End, *, is_reply: bool = False) -> None:
        self._link, self._board, self._start, self._end, self.is_reply = link, board, start, end, is_reply
        self.source = self.target = ""
        self.is_over = self.is_full = False  # nothing more is said; the end takes no more now
        self._joined = False
        self._under_way: deque[tuple[float, bytes]] = deque()  # (when it is due, what), and b"" for the end
        self._task: asyncio.Task[None] | None = None
        start.says = end.hears = self

    def join(self, source: str, target: str) -> None:
        """Both ends are there."""
        self.source, self.target, self._joined = source, target, True
        if self._under_way:
            self._task = self._board.begin(self._pass_on())

    def take(self, chunk: bytes) -> None:
        if self._joined and not self._under_way and not self._board.touches(self):
            self._write(chunk)
            return
        self._under_way.append((self._board.due(self) if self._joined else 0.0, chunk))
        if self._joined and len(self._under_way) == 1:
            self._task = self._board.begin(self._pass_on())
        self.steer()

    def steer(self) -> None:
        """Listen to who speaks, or not while too much is under way."""
        if self._start.is_open and (self.is_full or len(self._under_way) >= CHUNKS_UNDER_WAY_MAX):
            self._start.transport.pause_reading()
        elif self._start.is_open:
            self._start.transport.resume_reading()

    def stop(self) -> None:
        self._under_way.clear()
        if self._task is not None:
            self._task.cancel()

    async def _pass_on(self) -> None:
        try:
            while self._under_way:
                due, chunk = self._under_way[0]
                await self._board.until(due)
                await self._board.passable(self.source, self.target)
                self._under_way.popleft()
                self._write(chunk)
                self.steer()
        except Exception:
            self._link.abort()  # or both ends would wait for what nobody passes on
            raise

    def _write(self, chunk: bytes) -> None:
        if not chunk:
            self.is_over = True
            try:
                self._end.transport.write_eof()
            except OSError:  # gone, by a reset that nobody here has met yet
                self._link.abort()
            self._link.over()
            return
        passed = self._board.what_is_left(self, chunk)
        self._end.transport.write(passed)
        if len(passed) < len(chunk):
            self._link.abort()


class _Link:
    """A connection through a relay: who called, the node, and the two ways between them."""

    def __init__(self, board: Switchboard, relay: _Relay) -> None:
        self._board, self._relay = board, relay
        self.caller, self.node = _End(self), _End(self)
        self._ways = (_Way(self, board, self.caller, self.node), _Way(self, board, self.node, self.caller, is_reply=True))

    def opened(self, end: _End) -> None:
        if end is self.caller:
            self._relay.links.add(self)
        if self._board.is_ending or not self.caller.is_open:  # who called may have gone while the node was called
            self.abort()
        elif end is self.caller:
            self._board.begin(self._board.dial(self._relay, self))

    def join(self, source: str, target: str) -> None:
        there, back = self._ways
        there.join(source, target)
        back.join(target, source)

    def over(self) -> None:
        """One way has ended: once both have, what is still to be written is, and that is all."""
        if all(way.is_over for way in self._ways):
            for end in (self.caller, self.node):
                end.transport.close()

    def lost(self) -> None:
        """One end is gone; before both had said all, the other learns it by a reset too."""
        if not all(way.is_over for way in self._ways):
            self.abort()
        if not (self.caller.is_open or self.node.is_open):
            self._relay.links.discard(self)

    def abort(self) -> None:
        for way in self._ways:
            way.stop()
        for end in (self.caller, self.node):
            end.abort()


class _Owners:
    """Which node has a connection's other end: by the process that owns its socket, and the mark that the supervisor put on that.

    Every byte waits while this looks, so it looks at no more than it must: at nodes' processes that make calls, the last caller first.
    """

    def __init__(self, clients_pid: int) -> None:
        self._clients_pid = clients_pid
        self._names: dict[int, str] = {}  # pid → node, the last caller last
        self._others: dict[int, float] = {}  # pid → when it was first seen without a mark, by time.monotonic

    def of(self, port: int, relay_port: int) -> str:
        """The node's name, ``clients`` for the clients' process and its like, ``unknown`` if the caller has gone already."""
        inode = _inode(port, relay_port)
        if inode == NO_INODE:
            return "unknown"
        if _owns(self._clients_pid, inode):
            return CLIENTS
        return self._owner(list(self._names), inode) or self._owner(self._list(), inode) or CLIENTS

    def _owner(self, pids: list[int], inode: int) -> str | None:
        for pid in reversed(pids):
            if _owns(pid, inode):
                self._names[pid] = name = self._names.pop(pid)
                return name
        return None

    def _list(self) -> list[int]:
        """Find out who is there; the marked ones that were not known. What has no mark when it is new may get one: it is just starting a program."""
        there, now = {int(entry) for entry in os.listdir("/proc") if entry.isdigit()}, time.monotonic()
        self._names = {pid: name for pid, name in self._names.items() if pid in there}
        self._others = {pid: since for pid, since in self._others.items() if pid in there}
        found = []
        for pid in there - self._names.keys():
            if now - self._others.get(pid, now) > SETTLED_SECONDS:
                continue
            if (name := _mark(pid)) is None:
                self._others.setdefault(pid, now)
            else:
                self._names[pid] = name
                found.append(pid)
        return found


def _mark(pid: int) -> str | None:
    """The node that a process belongs to; None of the processes of PostgreSQL too, which call nobody."""
    try:
        folder = Path(f"/proc/{pid}")
        if (folder / "comm").read_bytes().strip() == b"postgres":
            return None
        for entry in (folder / "environ").read_bytes().split(b"\0"):
            if entry.startswith(MARK.encode() + b"="):
                return entry.decode().rpartition(":")[2]
    except OSError:  # gone, or somebody else's
        return None
    return None


def _inode(local_port: int, remote_port: int) -> int:
    """The socket that is connected from one port to the other; ``NO_INODE`` if nobody has it open.

    Asked of the kernel, sock_diag(7), which looks that one up: /proc/net/tcp is 5 ms of walking through all there are.
    """
    address = socket.inet_aton(HOST).ljust(16, b"\0")
    ends = struct.pack("!HH", local_port, remote_port) + address + address + struct.pack("=III", 0, *NO_COOKIE)
    request = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, ALL_STATES) + ends
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(CALL_SECONDS)
        kernel.send(NETLINK_HEAD.pack(NETLINK_HEAD.size + len(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 0, 0) + request)
        answer = kernel.recv(CHUNK_BYTES)
    _, kind, *_ = NETLINK_HEAD.unpack_from(answer)
    if kind == NLMSG_ERROR:
        return NO_INODE
    [inode] = struct.unpack_from("=I", answer, NETLINK_HEAD.size + INODE_AT)
    return int(inode)


def _owns(pid: int, inode: int) -> bool:
    wanted = f"socket:[{inode}]"
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if os.readlink(entry.path) == wanted:
                        return True
    except OSError:
        return False
    return False
