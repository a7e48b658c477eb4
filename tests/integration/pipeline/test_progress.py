"""A stream's progress, published as a consumer's offsets."""

from __future__ import annotations

import logging

import pytest

from myqueue.protocol.types import TopicPartition
from myqueue.testing import InMemoryTransport
from pipeline.source.progress import publish
from tests.support.served_memory import served

A0, A1, A7, B0 = (TopicPartition(topic, partition) for topic, partition in (("a", 0), ("a", 1), ("a", 7), ("b", 0)))


def test_progress_reaches_the_leaders_and_what_does_not_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """Of the topics that a consumer is named for; one that is refused keeps nothing from the others."""
    memory = InMemoryTransport()
    memory.create_topic("a", 2)
    memory.create_topic("b")
    with served(memory) as address, caplog.at_level(logging.WARNING):
        publish(address, {"a": 4}, {A0: 7, A1: 9, B0: 5})
        assert (7, 9, None) == (memory.committed("a", 0, 4), memory.committed("a", 1, 4), memory.committed("b", 0, 4))
        assert [] == caplog.messages
        publish(address, {"a": 4, "b": 6}, {A1: 10, A7: 1, B0: 5})
    assert (10, 5) == (memory.committed("a", 1, 4), memory.committed("b", 0, 6))
    assert ["the progress of consumer 4 in a/7 could not be published: topic 'a' has 2 partitions, from 0 on"] == caplog.messages


@pytest.mark.timeout(60)
def test_a_cluster_that_does_not_answer_is_asked_once(caplog: pytest.LogCaptureFixture) -> None:
    """However many partitions there are: a report must not hold the stream up."""
    with caplog.at_level(logging.WARNING):
        publish("127.0.0.1:9", {"a": 4}, {TopicPartition("a", number): 1 for number in range(1000)})
    assert 1 == len(caplog.messages)
