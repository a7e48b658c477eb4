"""Who may call: clients show the token, nodes sign with the cluster's secret, /livez and the description of the interface are free.

Both are optional on loopback and needed beyond it (``check_exposure``). Nothing here is ever logged.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import stat
from pathlib import Path

from flask import request

from ..clock import Clock
from ..errors import ConfigurationError, UnauthorizedError
from ..protocol import routes, signing


class Guard:
    """Checks a request before any view sees it."""

    def __init__(self, clock: Clock, *, token: str | None = None, secret: bytes | None = None) -> None:
        self._clock, self._token, self._secret = clock, token, secret

    def check(self) -> None:
        """Let the current Flask request pass, or raise UnauthorizedError. Reads the body of a call between nodes."""
        if request.path in routes.FREE:
            return
        if request.path.startswith(routes.INTERNAL):
            self._check_signature()
        else:
            self.check_client(request.headers.get("Authorization", ""))

    def check_client(self, authorization: str) -> None:
        """Let a client with this Authorization header ("" for none) pass, or raise UnauthorizedError."""
        if self._token is None:
            return
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token.encode()):
            raise UnauthorizedError("this cluster wants a token: Authorization: Bearer …")

    def _check_signature(self) -> None:
        if self._secret is None:
            return
        target = request.environ.get("RAW_URI") or request.full_path.rstrip("?")
        signing.verify(self._secret, request.headers.get(signing.HEADER), method=request.method, target=target,
                       body=request.get_data(cache=True), now_us=self._clock.now_us())


def read_secret(path: str) -> bytes:
    """The cluster's secret from its file. Raises ConfigurationError where the file is open to others or too short."""
    try:
        mode, secret = os.stat(path).st_mode, Path(path).read_bytes().strip()
    except OSError as error:
        raise ConfigurationError(f"the secret file {path} cannot be read: {error.strerror}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigurationError(f"the secret file {path} is open to others: chmod 600 it")
    if len(secret) < signing.SECRET_BYTES:
        raise ConfigurationError(f"the secret file {path} holds less than {signing.SECRET_BYTES} bytes")
    return secret


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposure(host: str, *, token: str | None, secret: bytes | None) -> None:
    """Raises ConfigurationError for an address that other machines could reach while anybody could call."""
    if not is_loopback(host) and not (token and secret):
        raise ConfigurationError(f"--host {host} can be reached by other machines: that needs a token (MYQUEUE_TOKEN) and the cluster's secret "
                                 "(--secret-file); without them only 127.0.0.1, ::1 and localhost can be bound")
