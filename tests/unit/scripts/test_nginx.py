"""The configuration of nginx that is made from a cluster's addresses."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

CONFIGURE = Path(__file__).parents[3] / "scripts" / "nginx" / "configure.py"
specification = importlib.util.spec_from_file_location("configure", CONFIGURE)
assert specification and specification.loader
configure = importlib.util.module_from_spec(specification)
specification.loader.exec_module(configure)

MANAGERS, BROKERS = ["10.0.0.1:9094", "10.0.0.2:9094"], ["10.0.0.3:9095"]


def rendered(**more: object) -> str:
    return configure.render(**{"listen": "9092", "managers": MANAGERS, "brokers": BROKERS, "balancers": [], **more})


def test_every_node_is_in_its_group_and_every_block_is_closed():
    text = rendered()
    assert ["10.0.0.1:9094", "10.0.0.2:9094", "10.0.0.3:9095"] == re.findall(r"^    server (\S+) ", text, re.MULTILINE)
    without_strings = re.sub(r"'[^']*'", "", text)
    assert without_strings.count("{") == without_strings.count("}")


def test_a_consume_is_never_repeated_and_calls_between_nodes_do_not_pass():
    """nginx repeats a GET at another node; a consume is a GET that must not be."""
    text = rendered()
    for location in ("/consumer/", "~ ^/(messages|logs)$", "~ ^/v1/topics/[^/]+/partitions/"):
        [block] = re.findall(rf"location {re.escape(location)} {{(.*)}}", text)
        assert "proxy_next_upstream off;" in block
    assert re.search(r"location /internal \{ return 404 ", text)
    assert "non_idempotent" not in text


def test_in_front_of_balancers_everything_goes_to_them():
    text = rendered(balancers=["10.0.0.9:9092"])
    assert {"http://myqueue_balancers"} == set(re.findall(r"proxy_pass (\S+);", text))
    assert ["10.0.0.9:9092"] == re.findall(r"^    server (\S+) ", text, re.MULTILINE)


def test_tls_is_on_with_a_certificate_only():
    assert "ssl" not in rendered()
    assert "listen 443 ssl;" in rendered(listen="443", tls=("/c.pem", "/k.pem"))


@pytest.mark.parametrize("words", [[], ["--managers", "a:1"], ["--certificate", "c", "--balancers", "b:1"]])
def test_wrong_usage_ends_with_2(words: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        configure.main(words)
    assert 2 == end.value.code
    assert "usage:" in capsys.readouterr().err
