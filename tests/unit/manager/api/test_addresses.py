from __future__ import annotations

import pytest

from manager.api.addresses import broker_address
from myqueue.errors import BadRequestError
from myqueue.protocol.types import NodeAddress
from myqueue.service.arguments import Arguments


def parse(**arguments: object) -> NodeAddress:
    return broker_address(Arguments(arguments.items()), "10.0.0.9")


@pytest.mark.parametrize(("arguments", "host", "port"), [
    ({"host": "h", "port": 80}, "h", 80), ({"port": "80"}, "10.0.0.9", 80), ({"broker_ip": "::1", "broker_port": 80}, "::1", 80),
    ({"broker_addr": "h:80"}, "h", 80), ({"broker_address": "http://h:80/"}, "h", 80), ({"broker_addr": "[::1]:80"}, "::1", 80),
    ({"broker_addr": "h:80", "port": 80}, "h", 80)])
def test_spellings(arguments, host, port):
    assert parse(**arguments) == NodeAddress(host, port)


@pytest.mark.parametrize("arguments", [
    {}, {"host": "h"}, {"port": 0}, {"port": 65_536}, {"port": True}, {"host": "a b", "port": 1}, {"host": "", "port": 1}, {"host": 5, "port": 1},
    {"host": "h/../x", "port": 1}, {"host": "h@x", "port": 1}, {"broker_addr": "h"}, {"broker_addr": "h:"}, {"broker_addr": "h:80", "host": "i"},
    {"broker_addr": "http://h:80/path"}, {"broker_addr": 80}])
def test_what_is_no_address(arguments):
    with pytest.raises(BadRequestError):
        parse(**arguments)
