"""What is drawn as the member or the generation of a group is what that group has now."""

from __future__ import annotations

import json
from typing import Any

from tests.fuzz.roster import GENERATION, MEMBER, Roster
from tests.fuzz.wire import NATIVE, Got, Sent


def roster() -> Roster:
    return Roster(("t",), staying=("a",), leaving="b", idle="c")


def told(status: int = 200, **body: Any) -> Got:
    return Got(status, {}, json.dumps(body).encode(), 0.1)


def named(group: str, made: Roster) -> tuple[str, dict[str, Any]]:
    body = json.dumps({"generation": GENERATION, "partitions": []}).encode()
    sent = made.named(Sent(NATIVE, "claim_partitions", "POST", f"/v1/groups/{group}/members/{MEMBER}/claims", {}, body))
    return sent.target, json.loads(sent.body)


def test_the_last_answer_of_each_group_counts() -> None:
    made = roster()
    made.note(told(group="a", instance_id="a", member_id=7, generation=3))
    made.note(told(group="b", instance_id="b", member_id=9, generation=4))
    made.note(told(group="a", instance_id="another one", member_id=8, generation=5))
    made.note(told(409, group="a", instance_id="a", member_id=1, generation=1))
    assert ("/v1/groups/a/members/7/claims", {"generation": 5, "partitions": []}) == named("a", made)
    assert ("/v1/groups/b/members/9/claims", {"generation": 4, "partitions": []}) == named("b", made)


def test_a_group_that_is_not_of_the_run_has_a_member_and_a_generation_too() -> None:
    assert ("/v1/groups/x%20y/members/1/claims", {"generation": 1, "partitions": []}) == named("x%20y", roster())


def test_all_else_is_sent_as_it_was_drawn() -> None:
    sent = Sent(NATIVE, "x", "POST", "/v1/groups/a/members/1/claims?q=%zz", {"A": "b"}, b"\xff")
    assert sent == roster().named(sent)
