from __future__ import annotations

from pathlib import Path

import pytest
from flask import Blueprint, Flask
from flask.testing import FlaskClient

from myqueue.errors import ConfigurationError
from myqueue.protocol import signing
from myqueue.service.app import build_app
from myqueue.service.auth import Guard, check_exposure, read_secret
from myqueue.service.lifecycle import Lifecycle

SECRET, TOKEN, NOW = b"k" * 32, "a-token", 1_700_000_000_000_000


class FixedClock:
    def now_us(self) -> int:
        return NOW

    def monotonic(self) -> float:
        return 0.0


@pytest.fixture
def client() -> FlaskClient:
    blueprint = Blueprint("x", __name__)
    blueprint.add_url_rule("/internal/thing", "inside", view_func=lambda: "inside", methods=["POST"])
    blueprint.add_url_rule("/thing", "outside", view_func=lambda: "outside")
    app: Flask = build_app("broker-1", [blueprint], lifecycle=Lifecycle(), ready=dict, guard=Guard(FixedClock(), token=TOKEN, secret=SECRET))
    return app.test_client()


def test_what_tells_nothing_of_the_cluster_is_free_and_all_else_wants_the_token(client: FlaskClient) -> None:
    assert [200] * 3 == [client.get(path).status_code for path in ("/livez", "/openapi.json", "/docs")]
    for path in ("/thing", "/readyz", "/metrics", "/nowhere"):
        answer = client.get(path)
        assert (401, "unauthorized") == (answer.status_code, answer.get_json()["error"]["code"])
    assert "outside" == client.get("/thing", headers={"Authorization": f"Bearer {TOKEN}"}).text


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x"])
def test_a_wrong_token_is_refused(client: FlaskClient, header: str) -> None:
    assert 401 == client.get("/thing", headers={"Authorization": header}).status_code


def test_between_nodes_the_signature_counts_and_the_token_does_not(client: FlaskClient) -> None:
    assert 401 == client.post("/internal/thing", data=b"x", headers={"Authorization": f"Bearer {TOKEN}"}).status_code
    good = signing.sign(SECRET, method="POST", target="/internal/thing?a=%2F", body=b"x", now_us=NOW)
    assert "inside" == client.post("/internal/thing?a=%2F", data=b"x", headers={signing.HEADER: good}).text
    assert 401 == client.post("/internal/thing?a=%2F", data=b"y", headers={signing.HEADER: good}).status_code


def test_a_secret_file_that_others_can_read_or_that_is_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(SECRET + b"\n")
    path.chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        read_secret(str(path))
    path.chmod(0o600)
    assert SECRET == read_secret(str(path))
    path.write_bytes(b"short")
    with pytest.raises(ConfigurationError, match="less than 32"):
        read_secret(str(path))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_secret(str(tmp_path / "nothing"))


def test_beyond_loopback_both_token_and_secret_are_needed() -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        check_exposure(host, token=None, secret=None)
    check_exposure("0.0.0.0", token=TOKEN, secret=SECRET)
    for token, secret in ((None, None), (TOKEN, None), (None, SECRET)):
        with pytest.raises(ConfigurationError, match="MYQUEUE_TOKEN"):
            check_exposure("0.0.0.0", token=token, secret=secret)
