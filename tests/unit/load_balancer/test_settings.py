from __future__ import annotations

import pytest

from load_balancer.settings import BalancerSettings
from myqueue.errors import ConfigurationError
from myqueue.settings import load

MANAGERS = {"managers": "http://127.0.0.1:1, http://127.0.0.1:2"}


def test_several_managers_and_ports_are_read() -> None:
    settings = load(BalancerSettings, MANAGERS | {"port": "9092,4000"}, {})
    assert (("http://127.0.0.1:1", "http://127.0.0.1:2"), [9092, 4000]) == (settings.managers, settings.ports)


@pytest.mark.parametrize(("flags", "said"), [
    ({}, "--managers"), ({"managers": ","}, "names no manager"), ({"managers": "127.0.0.1:5000"}, "http://host:port"),
    ({"managers": "https://x:1"}, "http://host:port"), (MANAGERS | {"port": "0"}, "from 1 to 65535"), (MANAGERS | {"port": "x"}, "from 1 to 65535"),
    (MANAGERS | {"port": "80,80"}, "none twice"), (MANAGERS | {"port": ""}, "one port"), (MANAGERS | {"workers": "0"}, "the least is 1"),
])
def test_settings_that_cannot_work_are_refused_with_a_sentence(flags: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        load(BalancerSettings, flags, {})
