"""The one door to HTTP for the SDK and between nodes. (The balancer passes bytes on untouched, below what
requests can do: load_balancer/connections.py.)

Foreign exceptions become ours here and nowhere else. What matters to every caller is whether the request may have
been carried out: :class:`UnreachableError` says it was never sent, :class:`OutcomeUnknownError` that nobody knows.
"""

from __future__ import annotations

import contextlib
import json as jsonlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

import requests
import requests.auth
import urllib3
from requests.adapters import HTTPAdapter

from ..clock import Clock, SystemClock
from ..errors import InternalError, MyQueueError, OutcomeUnknownError, UnauthorizedError, UnavailableError, UnreachableError
from ..protocol import routes, signing, wire

CONNECT_TIMEOUT_SECONDS = 2.0
READ_TIMEOUT_SECONDS = 10.0
POOL_CONNECTIONS_MAX = 64


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
    """A Transport over requests, with pooled keep-alive connections. Safe to share between threads."""

    def __init__(self, *, token: str | None = None, secret: bytes | None = None, clock: Clock | None = None,
                 pool_connections_max: int = POOL_CONNECTIONS_MAX, connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS) -> None:
        """``token`` goes with every call; with ``secret``, calls between nodes (``/internal/…``) are signed."""
        self._session = requests.Session()
        self._session.trust_env = False  # no proxy and no .netrc between us and our own nodes
        self._session.headers.clear()
        self._session.headers["User-Agent"] = "myqueue"
        if token:
            self._session.headers["Authorization"] = f"Bearer {token}"
        adapter = HTTPAdapter(pool_connections=pool_connections_max, pool_maxsize=pool_connections_max)
        self._session.mount("http://", adapter)
        self._session.mount("https://", adapter)
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
        self._session.close()

    def _exchange(self, method: str, url: str, params: Mapping[str, Any] | None, headers: Mapping[str, str] | None,
                  body: bytes | None, read_timeout_seconds: float) -> Response:
        with _mapped(url), self._send(method, url, params, headers, body, read_timeout_seconds) as answer:
            return Response(answer.status_code, answer.headers, answer.raw.read(decode_content=True))  # in one piece: ``content`` joins many

    def _send(self, method: str, url: str, params: Mapping[str, Any] | None, headers: Mapping[str, str] | None,
              body: bytes | None, read_timeout_seconds: float) -> requests.Response:
        return self._session.request(method, url, params=params, headers=headers, data=body, stream=True, allow_redirects=False, auth=self._signer,
                                     timeout=(self._connect_timeout_seconds, read_timeout_seconds))


class _Signer(requests.auth.AuthBase):
    """Signs the request that goes out, after requests has given its target the final form."""

    def __init__(self, secret: bytes, clock: Clock) -> None:
        self._secret, self._clock = secret, clock

    def __call__(self, prepared: requests.PreparedRequest) -> requests.PreparedRequest:
        target, body = prepared.path_url, prepared.body
        if target.startswith(routes.INTERNAL) and (body is None or isinstance(body, (bytes, str))):
            raw = body.encode() if isinstance(body, str) else body or b""
            prepared.headers[signing.HEADER] = signing.sign(self._secret, method=prepared.method or "", target=target, body=raw,
                                                            now_us=self._clock.now_us())
        return prepared


@contextlib.contextmanager
def _mapped(url: str) -> Iterator[None]:
    try:
        yield
    except requests.exceptions.ConnectTimeout as error:
        raise UnreachableError(f"no connection to {_host(url)} in time") from error
    except (requests.exceptions.ReadTimeout, urllib3.exceptions.ReadTimeoutError) as error:
        raise OutcomeUnknownError(f"no answer from {_host(url)} in time", timed_out=True) from error
    except requests.exceptions.ConnectionError as error:
        reason = getattr(error.args[0] if error.args else None, "reason", None)
        if isinstance(reason, urllib3.exceptions.NewConnectionError):
            raise UnreachableError(f"no connection to {_host(url)}") from error
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
