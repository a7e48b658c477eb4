from __future__ import annotations

import pytest

from myqueue.errors import UnauthorizedError
from myqueue.protocol import signing

SECRET = b"s" * signing.SECRET_BYTES
NOW = 1_700_000_000_000_000
REQUEST = {"method": "POST", "target": "/internal/x?y=1", "body": b"{}"}


def test_a_signature_is_good_for_its_own_request() -> None:
    signing.verify(SECRET, signing.sign(SECRET, **REQUEST, now_us=NOW), **REQUEST, now_us=NOW + 59_000_000)


@pytest.mark.parametrize("change", [{"method": "GET"}, {"target": "/internal/x?y=2"}, {"body": b"{ }"}])
def test_a_signature_is_not_good_for_another_request(change: dict) -> None:
    signature = signing.sign(SECRET, **REQUEST, now_us=NOW)
    with pytest.raises(UnauthorizedError, match="not of this cluster's secret"):
        signing.verify(SECRET, signature, **(REQUEST | change), now_us=NOW)


def test_a_signature_of_another_secret_or_another_time_is_refused() -> None:
    with pytest.raises(UnauthorizedError, match="not of this cluster's secret"):
        signing.verify(b"t" * 32, signing.sign(SECRET, **REQUEST, now_us=NOW), **REQUEST, now_us=NOW)
    with pytest.raises(UnauthorizedError, match="60 s"):
        signing.verify(SECRET, signing.sign(SECRET, **REQUEST, now_us=NOW), **REQUEST, now_us=NOW + 61_000_000)
    moved = signing.sign(SECRET, **REQUEST, now_us=NOW).replace(str(NOW), str(NOW + 1))
    with pytest.raises(UnauthorizedError, match="not of this cluster's secret"):
        signing.verify(SECRET, moved, **REQUEST, now_us=NOW)


@pytest.mark.parametrize("rubbish", [None, "", "v1", "v1 x y", "v2 1 2", "v1 -5 aa", "v1 1e9 aa", "v1 ١ aa", "v1 1 ünï", "v1 " + "9" * 400 + " aa"])
def test_rubbish_is_refused_as_rubbish(rubbish: str | None) -> None:
    with pytest.raises(UnauthorizedError):
        signing.verify(SECRET, rubbish, **REQUEST, now_us=NOW)
