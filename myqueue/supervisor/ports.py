"""Ports for nodes: who picks one keeps it until the node listens, so that no other program that picks by the same rule gets it."""

from __future__ import annotations

import contextlib
import secrets
import socket
import sys
import time
from collections.abc import Collection, Iterable

from ..errors import ConfigurationError
from .spec import HOST

# Below the ports that outgoing connections are given (32768 and up), so that a stopped node's port is still free later.
PORTS = range(15_000, 32_000)
PORT_TRIES = 200
LOOKS = 3  # at a port that somebody seems to keep
AGAIN_PAUSE_SECONDS = 0.02
CAN_KEEP = sys.platform == "linux"  # elsewhere a bound socket would keep the node itself from listening


class PortKeeper:
    """Ports kept by this process for nodes that may not be up.

    A kept port has a socket that is bound to it and does not listen. The node can listen beside it (both allow the address to be
    shared, which Linux grants as long as only one listens); whoever else picks a port tries to bind it for itself alone, and is refused.
    """

    def __init__(self) -> None:
        self._sockets: dict[int, socket.socket] = {}

    def pick(self, taken: Collection[int] = ()) -> int:
        """A port that nobody listens on and nobody keeps, and none of those taken; kept from now on.

        Raises:
            ConfigurationError: none was found.
        """
        for _ in range(PORT_TRIES):
            port = secrets.choice(PORTS)  # never seeded: two that pick at the same moment do not pick the same
            if port in taken:
                continue
            with contextlib.suppress(OSError):  # taken: another one
                self._keep(port, _bound(port, shared=False))
                return port
        raise ConfigurationError(f"no free port found between {PORTS.start} and {PORTS.stop}")

    def keep(self, ports: Iterable[int]) -> None:
        """Keep ports that were picked before, also beside others who keep them. One that somebody listens on is left: its node will say so."""
        for port in ports:
            if port not in self._sockets:
                with contextlib.suppress(OSError):
                    self._keep(port, _bound(port, shared=True))

    def keeps(self, port: int) -> bool:
        return port in self._sockets

    def let_go(self, ports: Collection[int] | None = None) -> None:
        """Keep these, or all, no longer."""
        for port in list(self._sockets if ports is None else ports):
            kept = self._sockets.pop(port, None)
            if kept is not None:
                kept.close()

    def _keep(self, port: int, bound: socket.socket) -> None:
        if not CAN_KEEP:
            bound.close()
            return
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._sockets[port] = bound

    def __enter__(self) -> PortKeeper:
        return self

    def __exit__(self, *exc: object) -> None:
        self.let_go()


def is_free(port: int) -> bool:
    """Whether nobody listens on a port or keeps it. The last connections of who listened there before do not count."""
    for _ in range(LOOKS):
        if _can_bind(port, shared=False):
            return True
        if not CAN_KEEP or _has_last_connections(port):
            return _can_bind(port, shared=True)
        # Somebody keeps it, or the connection that was in the way ended before it was looked for.
    return False


def is_free_soon(port: int, deadline: float) -> bool:
    """Whether nobody listens on a port or keeps it, by a moment of the monotonic clock at the latest."""
    while not is_free(port):
        if time.monotonic() >= deadline:
            return False
        time.sleep(AGAIN_PAUSE_SECONDS)
    return True


def _has_last_connections(port: int) -> bool:
    """Whether the kernel still knows connections of a port that were ended from here (TIME_WAIT): then nobody can bind it alone."""
    with open("/proc/net/tcp") as lines:
        return any(line.split()[1].endswith(f":{port:04X}") for line in lines)


def _can_bind(port: int, *, shared: bool) -> bool:
    try:
        _bound(port, shared=shared).close()
    except OSError:
        return False
    return True


def _bound(port: int, *, shared: bool) -> socket.socket:
    bound = socket.socket()
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, shared)
        bound.bind((HOST, port))
    except OSError:
        bound.close()
        raise
    return bound
