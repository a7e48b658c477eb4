"""A broker's address, in the spellings of the older faces and as host and port."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from myqueue.errors import BadRequestError
from myqueue.protocol.limits import PORT_MAX
from myqueue.protocol.names import parse_integer
from myqueue.protocol.types import NodeAddress
from myqueue.service.arguments import Arguments

_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|[0-9A-Fa-f:.]{2,45}", re.ASCII)
_SCHEME = re.compile(r"https?://", re.ASCII)


def has_address(arguments: Arguments) -> bool:
    return any(arguments.has(name) for name in ("host", "port", "broker_address"))


def broker_address(arguments: Arguments, caller_host: str) -> NodeAddress:
    """``host`` and ``port`` (``broker_ip``, ``broker_port``), ``port`` alone (the caller's host), or ``broker_addr``.

    Raises:
        BadRequestError: none of them, two that disagree, or no address.
    """
    port = arguments.integer("port", minimum=1, maximum=PORT_MAX)
    host = arguments.text("host")
    text = arguments.text("broker_address")
    if text is not None:
        named = _parse(text)
        if (host is not None and host != named.host) or (port is not None and port != named.port):
            raise BadRequestError("broker_address does not agree with host and port", argument="broker_address")
        return named
    if port is None:
        raise BadRequestError("a broker's address is missing: give host and port, port alone, or broker_address", argument="port")
    return NodeAddress(_checked(host if host is not None else caller_host), port)


def native_address(body: Mapping[str, Any]) -> NodeAddress | None:
    """``host`` and ``port`` of a body; None where neither is given. Raises BadRequestError."""
    host, port = body.get("host"), body.get("port")
    if host is None and port is None:
        return None
    if not isinstance(host, str) or port is None:
        raise BadRequestError("a broker's address is host, a string, and port; without both a broker is started", argument="host")
    return NodeAddress(_checked(host), parse_integer(port, name="port", minimum=1, maximum=PORT_MAX))


def _parse(text: str) -> NodeAddress:
    host, separator, port = _SCHEME.sub("", text.strip(), count=1).rstrip("/").rpartition(":")
    if not separator:
        raise BadRequestError("broker_address should look like host:port", argument="broker_address")
    number = parse_integer(port, name="the port of broker_address", minimum=1, maximum=PORT_MAX)
    return NodeAddress(_checked(host.removeprefix("[").removesuffix("]")), number)


def _checked(host: str) -> str:
    if not _HOST.fullmatch(host):
        raise BadRequestError(f"{host[:80]!r} is not a host", argument="host")
    return host
