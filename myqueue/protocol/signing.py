"""Signatures on calls between nodes: an HMAC-SHA256 (RFC 2104) of the cluster's secret over method, target, time and body.

    MyQueue-Signature: v1 <microseconds since 1970> <hex digest>

A signature is good for SKEW_SECONDS around its time, so that a recorded call cannot be sent again much later; calls
between nodes are idempotent, so that one sent again at once does no harm. Pure: the time comes in as an argument.
"""

from __future__ import annotations

import hashlib
import hmac

from ..errors import UnauthorizedError

HEADER = "MyQueue-Signature"
VERSION = "v1"
SKEW_SECONDS = 60
SECRET_BYTES = 32


def sign(secret: bytes, *, method: str, target: str, body: bytes, now_us: int) -> str:
    """The header's value. ``target`` is the path with its query string, as it stands in the request line."""
    return f"{VERSION} {now_us} {_digest(secret, method, target, body, now_us)}"


def verify(secret: bytes, signature: str | None, *, method: str, target: str, body: bytes, now_us: int) -> None:
    """Returns for a good signature.

    Raises:
        UnauthorizedError: there is none, it is of another secret or request, or its time is too far from ours.
    """
    version, when, digest = (*(signature or "").split(" "), "", "", "")[:3]
    if version != VERSION or not when.isascii() or not when.isdecimal() or len(when) > 19:
        raise UnauthorizedError("a call between nodes needs the cluster's signature")
    if not hmac.compare_digest(digest.encode(), _digest(secret, method, target, body, int(when)).encode()):
        raise UnauthorizedError("the signature is not of this cluster's secret and this request")
    if abs(now_us - int(when)) > SKEW_SECONDS * 1_000_000:
        raise UnauthorizedError(f"the signature's time is more than {SKEW_SECONDS} s from this node's clock")


def _digest(secret: bytes, method: str, target: str, body: bytes, when_us: int) -> str:
    signed = b"\n".join((VERSION.encode(), method.upper().encode(), target.encode(), str(when_us).encode(), hashlib.sha256(body).digest()))
    return hmac.new(secret, signed, hashlib.sha256).hexdigest()
