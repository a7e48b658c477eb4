"""The one door to HTTP for the SDK and between nodes. (The balancer passes bytes on untouched, below what
requests can do: load_balancer/connections.py.)

Foreign exceptions become ours here and nowhere else. What matters to every caller is whether the request may have
been carried out: :class:`UnreachableError` says it was never sent, :class:`OutcomeUnknownError` that nobody knows.
"""

from __future__ import annotations

import contextlib
import functools
import json as jsonlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter

from ..clock import Clock, SystemClock
from ..errors import ConfigurationError, InternalError, MyQueueError, OutcomeUnknownError, UnauthorizedError, UnavailableError, UnreachableError
from ..protocol import routes, signing, wire

CONNECT_TIMEOUT_SECONDS = 2.0
READ_TIMEOUT_SECONDS = 10.0
POOL_CONNECTIONS_MAX = 64
SERVERS_MAX = 1_024  # with connections of their own
PIECE_BYTES_MAX = 65_536  # of a body that is sent together with its head
TARGETS_MAX = 4_096  # of URLs that were taken apart before
HEADER_VALUE = re.compile(r"[\x20-\x7e\xa0-\xff]+")


@dataclass(frozen=True, slots=True)
class Response:
    """An answer that was read to its end. Header names are matched whatever their case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""

    def json(self) -> Any:
        """The body as JSON. Raises InternalError where it is none: our servers answer in JSON only."""
        try:
            return jsonlib.loads(self.body)
        except ValueError:
            raise InternalError(f"an answer with status {self.status} is not JSON") from None


class Transport(Protocol):
    """Sends one request. Every implementation bounds every wait."""

    def request(self, method: str, url: str, *, params: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None,
                body: bytes | None = None, read_timeout_seconds: float = READ_TIMEOUT_SECONDS, repeatable: bool = False) -> Response:
        """Send a request and read the whole answer, whatever its status.

        Args:
            repeatable: doing it twice does no harm; a connection that broke in mid-request is then tried once more,
                which hides the race with a server that closes an idle connection.

        Raises:
            UnreachableError: no connection; the request was not sent.
            OutcomeUnknownError: the connection broke, or no answer came in time.
        """
        ...


class RequestsTransport:
    """A Transport over the pooled keep-alive connections of requests. Safe to share between threads.

    What a session of requests does for every call (cookies, redirects, credentials and proxies of the environment) is not wanted here, and costs
    more than the exchange itself: so its adapter gives the connections, and each request goes straight to them.
    """

    def __init__(self, *, token: str | None = None, secret: bytes | None = None, clock: Clock | None = None,
                 pool_connections_max: int = POOL_CONNECTIONS_MAX, connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS) -> None:
        """``token`` goes with every call; with ``secret``, calls between nodes (``/internal/…``) are signed.

        Raises:
            ConfigurationError: a header cannot carry the token.
        """
        self._headers = {"User-Agent": "myqueue"}
        if token:
            if not HEADER_VALUE.fullmatch(token):
                raise ConfigurationError("the token holds characters that an HTTP header cannot carry")
            self._headers["Authorization"] = f"Bearer {token}"
        self._pools = _Pools(pool_connections_max)
        self._connect_timeout_seconds = connect_timeout_seconds
        self._signer = _Signer(secret, clock or SystemClock()) if secret else None

    def request(self, method: str, url: str, *, params: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None,
                body: bytes | None = None, read_timeout_seconds: float = READ_TIMEOUT_SECONDS, repeatable: bool = False) -> Response:
        try:
            return self._exchange(method, url, params, headers, body, read_timeout_seconds)
        except OutcomeUnknownError as error:
            if not repeatable or error.details.get("timed_out"):
                raise
            try:
                return self._exchange(method, url, params, headers, body, read_timeout_seconds)
            except UnreachableError:
                raise error from None  # the first one may have been carried out

    def close(self) -> None:
        """Close the idle connections."""
        self._pools.close()

    def _exchange(self, method: str, url: str, params: Mapping[str, Any] | None, headers: Mapping[str, str] | None,
                  body: bytes | None, read_timeout_seconds: float) -> Response:
        with _mapped(url):
            server, target = _parsed(url) if not params else _split(_prepared(url, params))
            sent = {**self._headers, **(headers or {})}
            if self._signer is not None:
                sent.update(self._signer.headers(method, target, body or b""))
            answer = self._pools.of(server).urlopen(
                method, target, body=body, headers=sent, retries=False, redirect=False, assert_same_host=False,
                timeout=urllib3.Timeout(connect=self._connect_timeout_seconds, read=read_timeout_seconds))
            return Response(answer.status, answer.headers, answer.data)


class _InOnePiece:
    """Of a connection: a small body leaves together with its head. In two pieces both sides would be woken twice for one request."""

    _held: list[bytes] | None = None

    def request(self, method: str, url: str, body: Any = None, headers: Mapping[str, str] | None = None, **more: Any) -> None:
        if body is None or len(body) > PIECE_BYTES_MAX:
            super().request(method, url, body, headers, **more)  # type: ignore[misc]
            return
        self._held = []
        try:
            super().request(method, url, body, headers, **more)  # type: ignore[misc]
            piece = b"".join(self._held)
        finally:
            self._held = None
        self.send(piece)

    def send(self, data: bytes) -> None:
        if self._held is None:
            super().send(data)  # type: ignore[misc]
        else:
            self._held.append(data)


class _Connection(_InOnePiece, urllib3.connection.HTTPConnection):
    pass


class _SecureConnection(_InOnePiece, urllib3.connection.HTTPSConnection):
    pass


class _Pools(HTTPAdapter):
    """Connections by server."""

    def __init__(self, connections_max: int) -> None:
        """``connections_max`` are kept for each server."""
        super().__init__(pool_connections=SERVERS_MAX, pool_maxsize=connections_max)
        self._by_server: dict[str, urllib3.HTTPConnectionPool] = {}

    def of(self, server: str) -> urllib3.HTTPConnectionPool:
        """Those to ``scheme://host:port``. Raises a RequestException, or an HTTPError of urllib3, where that is nothing to connect to."""
        pool = self._by_server.get(server)
        if pool is None:
            if len(self._by_server) >= SERVERS_MAX:
                self._by_server.clear()  # they are found again, but for those that were closed to make room
            pool = self.get_connection_with_tls_context(requests.Request("GET", server).prepare(), verify=True)
            self.cert_verify(pool, server, verify=True, cert=None)
            pool.ConnectionCls = _SecureConnection if pool.scheme == "https" else _Connection
            self._by_server[server] = pool
        return pool

    def close(self) -> None:
        self._by_server.clear()
        super().close()


def _prepared(url: str, params: Mapping[str, Any]) -> str:
    prepared = requests.Request("GET", url, params=params).prepare()
    assert prepared.url is not None
    return prepared.url


def _split(url: str) -> tuple[str, str]:
    """The server and what it is asked for."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}", urlunsplit(("", "", parts.path or "/", parts.query, ""))


@functools.lru_cache(TARGETS_MAX)
def _parsed(url: str) -> tuple[str, str]:
    return _split(_prepared(url, {}))


class _Signer:
    """Signs what goes out to other nodes, in its final form."""

    def __init__(self, secret: bytes, clock: Clock) -> None:
        self._secret, self._clock = secret, clock

    def headers(self, method: str, target: str, body: bytes) -> dict[str, str]:
        if not target.startswith(routes.INTERNAL):
            return {}
        return {signing.HEADER: signing.sign(self._secret, method=method, target=target, body=body, now_us=self._clock.now_us())}


@contextlib.contextmanager
def _mapped(url: str) -> Iterator[None]:
    try:
        yield
    except urllib3.exceptions.NewConnectionError as error:
        raise UnreachableError(f"no connection to {_host(url)}") from error
    except urllib3.exceptions.ConnectTimeoutError as error:
        raise UnreachableError(f"no connection to {_host(url)} in time") from error
    except urllib3.exceptions.ReadTimeoutError as error:
        raise OutcomeUnknownError(f"no answer from {_host(url)} in time", timed_out=True) from error
    except urllib3.exceptions.ProtocolError as error:
        raise OutcomeUnknownError(f"the connection to {_host(url)} broke") from error
    except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError) as error:
        raise OutcomeUnknownError(f"the exchange with {_host(url)} failed: {type(error).__name__}") from error


def _host(url: str) -> str:
    return urllib3.util.parse_url(url).netloc or url


def call(transport: Transport, method: str, url: str, *, json: Any = None, body: bytes | None = None, params: Mapping[str, Any] | None = None,
         headers: Mapping[str, str] | None = None, read_timeout_seconds: float = READ_TIMEOUT_SECONDS, repeatable: bool = False) -> Any:
    """Send JSON, or the bytes of ``body``, get JSON; an answer of 400 or above becomes the error its envelope names.

    Raises:
        MyQueueError: what the server answered, or that it could not be reached. Where a node refuses another's signature that is an
            UnavailableError: whoever the call is made for has shown its own credentials, and can do nothing about a clock or a secret of ours.
    """
    head = {"Content-Type": "application/json", **(headers or {})} if json is not None else headers
    raw = body if json is None else jsonlib.dumps(json).encode()
    answer = transport.request(method, url, params=params, headers=head, body=raw,
                               read_timeout_seconds=read_timeout_seconds, repeatable=repeatable)
    try:
        raise_for(answer)
    except UnauthorizedError as error:
        if not urlsplit(url).path.startswith(routes.INTERNAL):
            raise
        raise UnavailableError(f"{_host(url)} does not take this node's signature: {error.message}; nothing was done") from error
    return answer.json() if answer.body else {}


@contextlib.contextmanager
def understood() -> Iterator[None]:
    """Around whatever takes an answer apart: one that lacks something becomes an InternalError, so that no thread ends by it."""
    try:
        yield
    except MyQueueError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InternalError(f"an answer that cannot be understood: {type(error).__name__} {error}"[:200]) from error


def raise_for(answer: Response) -> None:
    """Raise the error that an answer of 400 or above stands for."""
    if answer.status >= 400:
        try:
            body = jsonlib.loads(answer.body)
        except ValueError:
            body = None
        raise wire.error_from_json(body, answer.status)
