"""Which manager is asked, and what a failure of one means."""

from __future__ import annotations

import json

import pytest

from broker.managers import Managers
from myqueue.client.transport import Response
from myqueue.errors import OutcomeUnknownError, TopicExistsError, UnavailableError, UnreachableError
from myqueue.protocol.wire import error_to_json


class Script:
    """A Transport that answers by URL and keeps what was asked."""

    def __init__(self, **answers: Response | Exception) -> None:
        self.answers, self.asked = answers, []

    def request(self, method: str, url: str, **more: object) -> Response:
        host = url.removeprefix("http://").split("/")[0]
        self.asked.append(host)
        answer = self.answers[host]
        if isinstance(answer, Exception):
            raise answer
        return answer


GOOD, BUSY = Response(200, {}, b'{"ok": true}'), Response(503, {}, b"{}")


def managers(script: Script) -> Managers:
    return Managers([f"http://{host}/" for host in script.answers], script)


def test_the_one_that_answered_is_asked_first():
    script = Script(a=UnreachableError(), b=GOOD, c=GOOD)
    asking = managers(script)
    for _ in range(2):
        assert asking.get("/x") == {"ok": True}
    assert script.asked == ["a", "b", "b"]


def test_a_call_that_may_not_be_repeated_goes_on_only_when_it_was_not_sent():
    script = Script(a=UnreachableError(), b=OutcomeUnknownError(), c=GOOD)
    with pytest.raises(OutcomeUnknownError):
        managers(script).send("POST", "/x")
    assert script.asked == ["a", "b"]


def test_a_repeatable_call_goes_round():
    script = Script(a=OutcomeUnknownError(), b=BUSY, c=GOOD)
    assert managers(script).post("/x", b"{}") == {"ok": True}
    assert script.asked == ["a", "b", "c"]


@pytest.mark.parametrize("answers", [{"a": UnreachableError(), "b": UnreachableError()}, {"a": BUSY, "b": UnreachableError()}])
def test_when_nobody_can_the_caller_is_told(answers: dict):
    with pytest.raises(UnavailableError):
        managers(Script(**answers)).get("/x")


def test_a_refusal_is_an_answer():
    script = Script(a=Response(409, {}, json.dumps(error_to_json(TopicExistsError("there"))).encode()), b=GOOD)
    with pytest.raises(TopicExistsError, match="there"):
        managers(script).post("/x", b"{}")
    assert script.asked == ["a"]
