"""What /metrics shows of a broker, from its heads alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.looks import role_of
from db.log_store import Head

LEADING = Head(promised_epoch=3, leader_epoch=3)


@pytest.mark.parametrize(("head", "role"), [
    (LEADING, "leader"), (replace(LEADING, promised_epoch=4), "follower"), (Head(), "follower"),
    (replace(LEADING, fault="entry 5 is damaged"), "damaged"), (Head(seeding_until=7), "seeding")])
def test_what_a_broker_does_for_a_partition(head: Head, role: str):
    assert role_of(head) == role
