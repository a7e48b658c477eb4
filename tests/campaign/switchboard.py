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
    open_connections: set[asyncio.StreamWriter] = field(default_factory=set)


@dataclass
class _Way:
    """One direction of a relayed connection: what one end says, on its way to the other."""

    source: str
    target: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    is_reply: bool = False
    under_way: asyncio.Queue[tuple[float, bytes]] = field(default_factory=lambda: asyncio.Queue(CHUNKS_UNDER_WAY_MAX))


class Switchboard:
    """All relays, on an event loop in a thread of its own. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._relays: dict[str, _Relay] = {}
        self._rules: list[Rule] = []
        self._owners = _Owners()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending = False
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
        relay.server = await asyncio.start_server(lambda reader, writer: self._serve(relay, reader, writer), HOST, relay.port, backlog=1_024)

    async def _close(self, relay: _Relay) -> None:
        if relay.server is not None:
            server, relay.server = relay.server, None
            for listener in server.sockets:
                self._loop.remove_reader(listener.fileno())
            await asyncio.sleep(0)  # what was accepted just now becomes a connection first: asyncio loses it where the server is closed by then
            server.close()
        for writer in list(relay.open_connections):
            _abort(writer)

    async def _end_tasks(self) -> None:
        """Also of connections that were only just accepted: a task that has not begun is not cancelled, or nobody would close its connection."""
        self._ending = True
        while left := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(left, timeout=CLOSE_SECONDS)
        await asyncio.sleep(CLOSE_SECONDS)  # what was aborted is closed in the loop's next rounds

    async def _serve(self, relay: _Relay, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        relay.open_connections.add(writer)
        out: asyncio.StreamWriter | None = None
        try:
            if self._ending:
                return
            source = self._owners.of(writer.get_extra_info("peername")[1], relay.port)
            await self._passable(source, relay.name)
            back, out = await asyncio.open_connection(HOST, relay.target_port)
            relay.open_connections.add(out)
            await self._relay_both(source, relay.name, (reader, out), (back, writer))
        except OSError:  # nobody listens there, or one end was reset: the other end learns it the same way
            pass
        except asyncio.CancelledError:
            if not self._thread.is_alive():
                raise
        finally:
            for one in filter(None, (writer, out)):
                relay.open_connections.discard(one)
                _abort(one)
            self._tasks.discard(task)

    async def _relay_both(self, source: str, target: str, there: tuple[asyncio.StreamReader, asyncio.StreamWriter],
                          back: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        """Until both directions have ended, or one is broken."""
        pumps = [asyncio.ensure_future(work) for way in (_Way(source, target, *there), _Way(target, source, *back, is_reply=True))
                 for work in (self._fill(way), self._empty(way))]
        try:
            await asyncio.gather(*pumps)
        finally:
            for pump in pumps:
                pump.cancel()

    async def _fill(self, way: _Way) -> None:
        """Take what is said, with the moment at which it arrives at the other end of a slow link."""
        while chunk := await way.reader.read(CHUNK_BYTES):
            await way.under_way.put((self._loop.time() + self._delay(way), chunk))
        await way.under_way.put((0.0, b""))

    async def _empty(self, way: _Way) -> None:
        while True:
            due, chunk = await way.under_way.get()
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            await self._passable(way.source, way.target)
            if not chunk:
                break
            passed = self._what_is_left(way, chunk)
            way.writer.write(passed)
            await way.writer.drain()
            if len(passed) < len(chunk):
                raise ConnectionResetError
        if way.writer.can_write_eof():
            way.writer.write_eof()

    def _what_is_left(self, way: _Way, chunk: bytes) -> bytes:
        """Of a reply, which may be lost or broken here."""
        for rule in self._rules:
            if way.is_reply and rule.action in (LOSE_REPLY, RESET_IN_REPLY) and rule.is_about(way.target, way.source):
                rule.seen += 1
                if rule.seen % rule.every == 0:
                    return b"" if rule.action == LOSE_REPLY else chunk[:len(chunk) // 2]
        return chunk

    def _delay(self, way: _Way) -> float:
        return sum(rule.delay_seconds for rule in self._rules if rule.action == SLOW and rule.is_about(way.source, way.target))

    async def _passable(self, source: str, target: str) -> None:
        """Wait as long as bytes from here to there are held."""
        while any(rule.action == CUT and rule.is_about(source, target) for rule in self._rules):
            await asyncio.sleep(POLL_SECONDS)


def _abort(writer: asyncio.StreamWriter) -> None:
    """End a connection by a reset: whoever waits at its other end learns at once that no more will come."""
    with contextlib.suppress(OSError):
        connection = writer.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
    writer.transport.abort()


class _Owners:
    """Which node has a connection's other end: by the process that owns its socket, and the mark that the supervisor put on that.

    Every byte waits while this looks, so it looks at no more than it must: at nodes' processes that make calls, the last caller first.
    """

    def __init__(self) -> None:
        self._names: dict[int, str] = {}  # pid → node, the last caller last
        self._others: dict[int, float] = {}  # pid → when it was first seen without a mark, by time.monotonic

    def of(self, port: int, relay_port: int) -> str:
        """The node's name, ``clients`` for this process and its like, ``unknown`` if the caller has gone already."""
        inode = _inode(port, relay_port)
        if inode == NO_INODE:
            return "unknown"
        if _owns(os.getpid(), inode):
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
