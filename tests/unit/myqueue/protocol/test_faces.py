from __future__ import annotations

import pytest

from myqueue.protocol.faces import Face, face_of


@pytest.mark.parametrize(("path", "face"), [
    ("/topics", Face.QUEUE), ("/producer/produce", Face.QUEUE), ("/consumer/consume", Face.QUEUE), ("/size", Face.QUEUE),
    ("/broker/remove", Face.QUEUE), ("/partition", Face.QUEUE), ("/health", Face.QUEUE), ("/unread_messages/", Face.QUEUE),
    ("/", Face.PARTITION), ("/raft_status", Face.PARTITION), ("/consumers", Face.PARTITION), ("/logs", Face.PARTITION), ("/brokers/", Face.PARTITION),
    ("/broker/remove/", Face.QUEUE), ("/topics/x", Face.NATIVE),
    ("/v1/topics", Face.NATIVE), ("/nowhere", Face.NATIVE), ("/internal/x", Face.NATIVE), ("/topicsx", Face.NATIVE),
])
def test_the_face_of_a_path(path: str, face: Face) -> None:
    assert face is face_of(path)
