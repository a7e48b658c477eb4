"""A request whose body never comes whole is nobody's work."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests

from tests.support.raw_http import RawConnection
from tests.support.service import Service
from tests.support.upstream import FakeCluster


def test_a_chunked_body_that_grows_too_large_is_refused_and_not_carried_out(cluster: FakeCluster, balancer: Service) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(160):
            yield b"x" * 65_536

    answer = requests.post(balancer.url + "/producer/produce", data=pieces(), timeout=20)
    assert (413, "failure") == (answer.status_code, answer.json()["status"])
    assert all(request.body == b"" for request in cluster.received()), "the backend saw the end of a body that was refused"


@pytest.mark.parametrize("body", [b"zz\r\nabc\r\n0\r\n\r\n", b"5\r\nabcdefgh\r\n0\r\n\r\n", b"-1\r\n\r\n"])
def test_a_body_with_wrong_chunks_is_the_client_s_mistake(cluster: FakeCluster, balancer: Service, body: bytes) -> None:
    with RawConnection(balancer.port) as connection:
        connection.send(b"POST /producer/produce HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
        answer = connection.answer("POST")
    assert (400, True) == (answer.status, b'"status":"failure"' in answer.body)


def test_a_client_that_hangs_up_in_mid_upload_costs_nothing(cluster: FakeCluster, balancer: Service) -> None:
    for _ in range(20):
        with RawConnection(balancer.port) as connection:
            connection.send(b"POST /topics HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nabc")
    assert 200 == requests.get(balancer.url + "/topics", timeout=5).status_code
    assert all(request.body == b"" for request in cluster.received())
