"""The checks of a stress run find what is wrong, each by its sentence, and nothing where nothing is."""

from __future__ import annotations

import pytest

from tests.stress.check import Place, Sent, in_order, read_once, stored, text_of


def sent(*places: tuple[int, int, int]) -> list[Sent]:
    """Messages by (thread, partition, offset), numbered by thread."""
    numbers: dict[int, int] = {}
    made = []
    for thread, partition, offset in places:
        number = numbers.setdefault(thread, 0)
        made.append(Sent(thread, number, Place(partition, offset, text_of(thread, number))))
        numbers[thread] += 1
    return made


GOOD = sent((0, 0, 0), (1, 0, 1), (0, 1, 0), (0, 0, 2))
READ = [one.place for one in GOOD]


def test_nothing_is_wrong_where_all_agrees() -> None:
    assert [] == stored(GOOD, expected=4) + read_once(GOOD, READ) + in_order(READ)


@pytest.mark.parametrize(("messages", "expected", "says"), [
    (GOOD, 5, "4 messages were acknowledged, not 5"),
    (sent((0, 0, 0), (0, 0, 2)), 2, "do not stand at 0 to 1"),
    (sent((0, 0, 0), (1, 0, 0)), 2, "do not stand at 0 to 1"),
    (sent((0, 0, 1), (0, 0, 0)), 2, "not behind the one before"),
])
def test_a_wrong_acknowledgement_is_told(messages: list[Sent], expected: int, says: str) -> None:
    assert any(says in sentence for sentence in stored(messages, expected=expected))


@pytest.mark.parametrize(("read", "says"), [
    (READ[1:], "1 messages never came"), ([*READ, READ[0]], "1 messages came that were not due"),
    ([*READ[1:], READ[0]._replace(text="another")], "came that were not due"), ([*READ[1:], READ[0]._replace(offset=9)], "never came"),
])
def test_a_message_that_is_lost_doubled_or_changed_is_told(read: list[Place], says: str) -> None:
    assert any(says in sentence for sentence in read_once(GOOD, read))


def test_what_may_come_again_may_come_once_more_and_must_come() -> None:
    assert [] == read_once(GOOD, [*READ, READ[0]], may_come_again=READ[:1]) + read_once(GOOD, READ, may_come_again=READ[:1])
    assert ["1 messages came that were not due, such as " + repr(READ[0])] == read_once(GOOD, [*READ, READ[0], READ[0]], may_come_again=READ[:1])
    assert ["1 messages never came, such as " + repr(READ[0])] == read_once(GOOD, READ[1:], may_come_again=READ[:1])


def test_a_wrong_order_is_told() -> None:
    assert in_order([Place(0, 0, "a"), Place(1, 0, "b"), Place(0, 2, "d"), Place(0, 1, "c")]) == [
        "Place(partition=0, offset=1, text='c') came after Place(partition=0, offset=2, text='d')"]
