"""A claim fences: from then on nothing of an older generation is committed."""

from __future__ import annotations

import pytest

from broker.core.group import plan_group
from broker.core.offsets import ClaimRequest, CommitRequest, DequeueRequest, LogRange
from myqueue.errors import MemberFencedError
from myqueue.protocol.entry import LogEnd
from myqueue.protocol.fold import ConsumerState, LogState, OffsetCommit
from myqueue.protocol.types import CommitStamp, PartitionId

PARTITION, READABLE = PartitionId(7, 0), LogRange(3, 10)


def planned(*requests, state: LogState | None = None):
    return plan_group(PARTITION, LogEnd(offset=READABLE.end), state or LogState(), READABLE, list(requests), epoch=1, now_us=1_000)


@pytest.mark.parametrize(("start", "expected"), [("earliest", 3), ("latest", 10)])
def test_a_group_that_has_committed_nothing_begins_at_its_start(start, expected):
    """And that is committed: whoever comes next begins there too, however much was appended meanwhile."""
    plan = planned(ClaimRequest("@1", 4, start))
    assert [outcome.offset for outcome in plan.outcomes] == [expected]
    assert OffsetCommit.from_body(plan.entries[0].body) == OffsetCommit("@1", expected, 4)


def test_a_claim_goes_on_where_the_group_stands_and_a_repeat_writes_nothing():
    plan = planned(ClaimRequest("@1", 4), ClaimRequest("@1", 4), state=LogState(consumers={"@1": ConsumerState(6, 2, 1, 1)}))
    assert [outcome.offset for outcome in plan.outcomes] == [6, 6]
    assert len(plan.entries) == 1


def test_the_older_generation_commits_and_claims_nothing_any_more():
    """In one group of requests, so within one transaction, as well as later."""
    plan = planned(CommitRequest("@1", 5, 2), ClaimRequest("@1", 4), CommitRequest("@1", 7, 2), ClaimRequest("@1", 2), CommitRequest("@1", 8, 4))
    assert [getattr(outcome, "offset", None) for outcome in plan.outcomes] == [5, 5, None, None, 8]
    assert [type(outcome) for outcome in plan.outcomes[2:4]] == [MemberFencedError] * 2
    assert plan.outcomes[2].details == {"generation": 4}
    assert plan.changes.consumers["@1"][:2] == (8, 4)


def test_a_claim_tells_what_the_members_before_may_have_died_of_and_a_repeat_tells_the_same():
    for handed_end, told in ((7, (6, 0, 3)), (9, (6, 9, 2)), (0, (6, 0, 2))):
        plan = planned(ClaimRequest("@1", 4), ClaimRequest("@1", 4), state=LogState(consumers={"@1": ConsumerState(6, 2, 1, 1, handed_end, 2)}))
        assert [(outcome.offset, outcome.handed_end, outcome.deaths) for outcome in plan.outcomes] == [told] * 2
        assert len(plan.entries) == 1


def test_a_commit_may_say_what_is_handed_out_from_now_on():
    plan = planned(CommitRequest("@1", 5, 1, handed_end=8), CommitRequest("@1", 6, 1, handed_end=6))
    assert [OffsetCommit.from_body(entry.body).handed_end for entry in plan.entries] == [8, None]
    assert plan.changes.consumers["@1"][4:6] == (0, 0)


def test_a_commit_that_arrives_behind_a_later_one_of_its_client_writes_nothing():
    """Nor does a repetition. Who seeks back says so by a later one, and another client's count for themselves."""
    def commit(offset: int, sequence: int, committer: int = 7) -> CommitRequest:
        return CommitRequest("@1", offset, 1, stamp=CommitStamp(committer, sequence))

    plan = planned(commit(5, 1), commit(6, 2), commit(5, 1), commit(6, 2), commit(4, 3), commit(99, 2), commit(8, 1, committer=9))
    assert [outcome.offset for outcome in plan.outcomes] == [5, 6, 6, 6, 4, 4, 8]
    assert [OffsetCommit.from_body(entry.body).stamp for entry in plan.entries] == [(7, 1), (7, 2), (7, 3), (9, 1)]
    assert plan.changes.consumers["@1"] == ConsumerState(8, 1, 3, 1_000, committer=9, sequence=1)


def test_what_is_committed_without_a_stamp_between_does_not_let_an_old_one_pass():
    """An operator, or the queue face, moves the consumer; the late commit of its client does not undo that."""
    stamped = CommitRequest("#1", 8, stamp=CommitStamp(7, 4))
    plan = planned(stamped, CommitRequest("#1", 3), stamped, DequeueRequest("#1"), CommitRequest("#1", 9, stamp=CommitStamp(7, 3)))
    assert [outcome.offset for outcome in plan.outcomes] == [8, 3, 3, 3, 4]
    assert len(plan.entries) == 3


def test_an_older_generation_is_refused_whatever_its_stamp():
    plan = planned(ClaimRequest("@1", 4), CommitRequest("@1", 5, 3, stamp=CommitStamp(7, 9)))
    assert isinstance(plan.outcomes[1], MemberFencedError)


def test_groups_do_not_fence_each_other():
    plan = planned(ClaimRequest("@1", 9), CommitRequest("@2", 5, 1), CommitRequest("#1", 5))
    assert [outcome.offset for outcome in plan.outcomes] == [3, 5, 5]
