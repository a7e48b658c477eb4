"""The short way of packed batches keeps the app's rules: who may call, how large a body may be, what is told of a fault."""

from __future__ import annotations

from typing import Any

import pytest
from flask.testing import FlaskClient

from broker.api import records
from broker.api.packed import PackedAppends
from broker.core.append import AppendResult
from myqueue.protocol.batch import BATCH_TYPE, pack_values
from myqueue.protocol.types import PartitionId
from myqueue.service.app import build_app
from myqueue.service.auth import Guard
from myqueue.service.lifecycle import Lifecycle
from myqueue.testing import ManualClock

TOKEN, PATH = "a-token", "/v1/topics/t/partitions/0/records"
GOOD = {"Authorization": f"Bearer {TOKEN}"}


class Service:
    """Remembers what was appended, or meets an error."""

    def __init__(self) -> None:
        self.appended: list[tuple[PartitionId, int]] = []
        self.error: Exception | None = None

    def append(self, partition: PartitionId, blocks: Any, sequence: Any, *, size_bytes: int, expected_end_offset: int | None) -> AppendResult:
        if self.error is not None:
            raise self.error
        self.appended.append((partition, size_bytes))
        return AppendResult(7, sum(block.count for block in blocks), 1_000)


class Directory:
    def find(self, topic: str, partition: int, wanted_id: int | None = None) -> PartitionId:
        return PartitionId(5, partition)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def client(service: Service) -> FlaskClient:
    guard, directory = Guard(ManualClock(), token=TOKEN), Directory()
    app = build_app("broker-1", [records.make_blueprint(service, directory)], lifecycle=Lifecycle(), ready=dict, guard=guard, body_bytes_max=1_000)
    app.wsgi_app = PackedAppends(app, "broker-1", guard, service, directory)
    return app.test_client()


def post(client: FlaskClient, body: bytes, headers: dict[str, str], path: str = PATH) -> Any:
    return client.post(path, data=body, headers={"Content-Type": BATCH_TYPE, **headers})


def test_a_packed_batch_is_stored(client: FlaskClient, service: Service) -> None:
    body = pack_values([b"a", b"b"])
    answer = post(client, body, GOOD)
    assert answer.get_json() == {"topic": "t", "topic_id": 5, "partition": 0, "base_offset": 7, "record_count": 2, "append_time": 1_000,
                                 "duplicate": False}
    assert service.appended == [(PartitionId(5, 0), len(body))]
    told = answer.headers
    assert (told["MyQueue-Node"], told["Cache-Control"], len(told["MyQueue-Request-Id"])) == ("broker-1", "no-store", 32)


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}, {"Authorization": TOKEN}])
def test_without_the_token_nothing_is_stored(client: FlaskClient, service: Service, headers: dict[str, str]) -> None:
    answer = post(client, pack_values([b"a"]), headers)
    assert (answer.status_code, answer.get_json()["error"]["code"], service.appended) == (401, "unauthorized", [])


def test_a_body_over_the_bound_is_refused_by_the_app(client: FlaskClient, service: Service) -> None:
    answer = post(client, pack_values([b"x" * 2_000]), GOOD)
    assert (answer.status_code, answer.get_json()["error"]["code"], service.appended) == (413, "too_large", [])


def test_a_fault_tells_nothing_but_where_it_is_logged(client: FlaskClient, service: Service) -> None:
    service.error = RuntimeError("the password is 1234")
    answer = post(client, pack_values([b"a"]), {**GOOD, "MyQueue-Request-Id": "r-9"})
    assert (answer.status_code, answer.get_json()["error"]["code"]) == (500, "internal")
    assert "1234" not in answer.text
    assert "r-9" in answer.text
    assert answer.headers["MyQueue-Request-Id"] == "r-9"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
def test_another_method_is_none_of_its_business(client: FlaskClient, service: Service, method: str) -> None:
    answer = client.open(PATH.replace("records", "trim"), method=method, data=b"x", headers={"Content-Type": BATCH_TYPE, **GOOD})
    assert answer.status_code in (200, 405)
    assert service.appended == []
