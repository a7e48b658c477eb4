"""Records in, batches out: the laws at the head of the module."""

from __future__ import annotations

import pytest

from myqueue.client.accumulator import RECORD_OVERHEAD_BYTES, Accumulator, Batch, record_size
from myqueue.client.delivery import Completion
from myqueue.errors import OutcomeUnknownError, TooLargeError, UnknownPartitionError, UnknownTopicError
from myqueue.protocol.partitioner import partition_for
from myqueue.protocol.types import Record

LINGER = 0.01


def accumulator(partitions: int = 1, **options) -> Accumulator:
    made = Accumulator(**{"batch_bytes_max": 1_000, "batch_records_max": 5, "buffer_bytes_max": 10_000, "linger_seconds": LINGER,
                          "delivery_timeout_seconds": 60.0, "request_bytes_max": 0, "new_completion": lambda partition: [partition], **options})
    made.set_topic("a", partitions=partitions, producer_id=7, producer_epoch=0)
    return made


def fill(made: Accumulator, *values: bytes, now: float = 0.0, **where) -> None:
    for value in values:
        assert made.add("a", value, now=now, **where) is not None


def take(made: Accumulator, now: float = 100.0) -> Batch:
    batch = made.take_ready(now)
    assert batch is not None
    made.assign_sequence(batch)
    return batch


def test_a_batch_lingers_for_more_and_then_leaves() -> None:
    made = accumulator()
    fill(made, b"1", b"2", now=5.0)
    assert made.take_ready(5.0) is None
    assert 5.0 + LINGER == made.next_due()
    assert [b"1", b"2"] == made.take_ready(5.0 + LINGER).records
    assert made.next_due() is None


def test_who_waits_alone_is_not_kept_waiting_by_a_linger() -> None:
    made = accumulator(new_completion=Completion)
    for at in (5.0, 6.0):
        completion, _ = made.add("a", b"1", now=at)
        assert made.take_ready(at) is None
        assert made.want(completion, at)
        assert made.next_due() <= at
        made.delivered(take(made, at))


def test_callers_who_were_released_together_are_gathered_again_but_for_no_longer_than_a_linger() -> None:
    made = accumulator(new_completion=Completion)

    def waits(now: float) -> bool:
        completion, _ = made.add("a", b"x", now=now)
        return made.want(completion, now)

    assert waits(1.0)
    first = take(made, 1.0)
    assert [False, False] == [waits(1.0) for _ in range(2)], "one is under way"
    made.delivered(first)
    assert made.take_ready(1.0) is None, "whose message landed may send another: else one would take turns with the two for good"
    assert waits(1.0)
    second = take(made, 1.0)
    assert 3 == len(second.records)
    made.delivered(second)
    assert [False, False, True] == [waits(2.0) for _ in range(3)]
    made.delivered(take(made, 2.0))
    assert not waits(3.0)
    assert made.take_ready(3.0) is None
    assert 3.0 + LINGER == made.next_due()
    made.delivered(take(made, 3.0 + LINGER))
    assert waits(4.0), "the others have gone"


def test_who_begins_to_wait_for_what_has_left_counts_for_the_next_batch_and_for_what_was_delivered_is_of_no_account() -> None:
    made = accumulator(new_completion=Completion)
    completions = [made.add("a", b"x", now=1.0)[0] for _ in range(2)]
    batch = take(made)
    assert [False, False] == [made.want(completion, 1.0) for completion in completions]
    made.delivered(batch)
    assert not made.want(completions[0], 1.0)
    again, _ = made.add("a", b"x", now=2.0)
    assert [False, True] == [made.want(again, 2.0) for _ in range(2)]


def test_a_full_batch_leaves_at_once_by_count_and_by_bytes() -> None:
    made = accumulator()
    fill(made, *[b"x"] * 5)
    assert 5 == len(made.take_ready(0.0).records)
    made = accumulator()
    fill(made, b"x" * 600, b"y" * 600)
    assert [b"x" * 600] == made.take_ready(0.0).records


def test_the_fast_path_and_the_slow_path_fill_the_same_batches() -> None:
    """12 records in batches of 5, whichever way each one came."""
    made = accumulator()
    for number in range(12):
        value = b"%d" % number
        assert made.try_add("a", value) or made.add("a", value, now=0.0)
    assert [5, 5, 2] == [len(batch.records) for batch in made.pending()]
    assert [b"%d" % number for number in range(12)] == [record for batch in made.pending() for record in batch.records]


def test_a_record_gets_its_place_in_its_batch() -> None:
    made = accumulator()
    assert ([("a", 0)], 0) == made.add("a", b"1", now=0.0)
    assert ([("a", 0)], 1) == made.try_add("a", b"2")
    assert ([("a", 0)], 2) == made.add("a", Record(b"3", key=b"k"), now=0.0)


SMALL_REQUESTS = record_size(b"1") * 10  # two batches


def test_where_little_waits_a_lane_has_one_batch_in_flight_and_the_rest_in_order() -> None:
    made = accumulator(request_bytes_max=SMALL_REQUESTS * 2)
    fill(made, *[b"%d" % number for number in range(5)])
    first = take(made)
    fill(made, *[b"%d" % number for number in range(5, 12)])
    assert (None, None) == (made.take_ready(100.0), made.next_due())
    made.delivered(first)
    second = take(made)
    assert ([b"0", b"1", b"2", b"3", b"4"], 0) == (first.records, first.sequence.seq)
    assert ([b"5", b"6", b"7", b"8", b"9"], 1) == (second.records, second.sequence.seq)


def test_where_much_waits_a_second_batch_leaves_before_the_answer_to_the_first_and_no_third() -> None:
    made = accumulator(request_bytes_max=SMALL_REQUESTS)
    fill(made, *[b"%d" % (number % 10) for number in range(40)])
    first, second = take(made), take(made)
    assert [(0, 10), (1, 10)] == [(batch.sequence.seq, len(batch.records)) for batch in (first, second)]
    assert made.take_ready(100.0) is None
    made.delivered(second)  # its answer came first: it is stored, and so is what the log took before it
    third = take(made)
    assert 2 == third.sequence.seq
    made.delivered(first)
    made.delivered(third)
    assert 3 == take(made).sequence.seq


def test_after_a_failure_nothing_leaves_behind_another_until_something_is_stored() -> None:
    made = accumulator(request_bytes_max=SMALL_REQUESTS)
    fill(made, *[b"x"] * 40)
    first, second = take(made), take(made)
    made.retry(second, None, not_before=0.0)
    assert made.take_ready(100.0) is None
    made.retry(first, OutcomeUnknownError(), not_before=0.0)
    assert take(made) is first
    assert made.take_ready(100.0) is None
    made.delivered(first)
    assert (take(made), second.sequence.seq) == (second, 1)
    assert 2 == take(made).sequence.seq


@pytest.mark.parametrize("doubtful", [False, True])
def test_what_was_sent_behind_a_batch_that_is_given_up_is_sent_anew_unless_it_may_be_stored(doubtful: bool) -> None:
    """The log takes the second only behind the first. Where that surely is not stored, neither is the second, whatever its own attempt met."""
    made = accumulator(request_bytes_max=SMALL_REQUESTS)
    fill(made, *[b"x"] * 20)
    first, second = take(made), take(made)
    first.doubtful, second.doubtful = doubtful, True
    for batch in (second, first):
        made.retry(batch, OutcomeUnknownError(), not_before=0.0)
    made.give_up(first, OutcomeUnknownError())
    assert second.lane.identity is None, "nobody may use sequence 1 again"
    assert ([second] if doubtful else []) == made.take_expired(0.0)
    if not doubtful:
        assert made.take_ready(100.0) is second
        made.renew(second.lane, producer_id=8, producer_epoch=0)
        assert (8, 0) == (made.assign_sequence(second).producer_id, second.sequence.seq)


def test_an_orphan_that_lands_well_is_delivered() -> None:
    made = accumulator(request_bytes_max=SMALL_REQUESTS)
    fill(made, *[b"x"] * 20)
    first, second = take(made), take(made)
    first.doubtful = True
    made.retry(first, OutcomeUnknownError(), not_before=0.0)
    made.give_up(first, OutcomeUnknownError())
    made.delivered(second)
    made.take_failed()
    assert made.buffer_bytes_max == made.room


def test_what_comes_while_a_batch_is_in_flight_accumulates() -> None:
    made = accumulator()
    fill(made, b"1")
    first = take(made)
    fill(made, b"2", b"3", b"4")
    made.delivered(first)
    assert [b"2", b"3", b"4"] == take(made).records


def test_a_retry_is_the_same_batch_with_the_same_sequence_and_nothing_overtakes_it() -> None:
    made = accumulator()
    fill(made, *[b"%d" % number for number in range(10)])
    first = take(made, now=1.0)
    before = (list(first.records), first.sequence)
    made.retry(first, OutcomeUnknownError(), not_before=3.0)
    assert made.take_ready(2.9) is None
    again = take(made, now=3.0)
    assert again is first
    assert before == (again.records, again.sequence)


def test_what_has_filled_up_behind_a_batch_leaves_with_it_up_to_a_bound() -> None:
    """And is one batch with it from then on; what is still open stays, and what comes later waits."""
    completions = iter("abcdef")
    made = accumulator(request_bytes_max=record_size(b"x") * 10, new_completion=lambda partition: next(completions))
    fill(made, *[b"%d" % number for number in range(7)])
    first = take(made)
    assert ([b"%d" % number for number in range(5)], [("a", 0)]) == (first.records, first.completions), "the one behind it was open"
    fill(made, *[b"%d" % number for number in range(7, 10)], *[b"x"] * 10)
    made.retry(first, OutcomeUnknownError(), not_before=0.0)
    assert 5 == len(take(made).records), "what was sent before is sent again as it was"
    made.delivered(first)
    second = take(made)
    assert [b"5", b"6", b"7", b"8", b"9"] + [b"x"] * 5 == second.records
    assert ([("b", 0), ("c", 5)], 1) == (second.completions, second.sequence.seq)
    assert [10, 5] == [len(batch.records) for batch in made.pending()]
    made.delivered(second)
    made.delivered(take(made))
    assert made.buffer_bytes_max == made.room


def test_what_leaves_together_is_given_up_together_and_counted_once() -> None:
    made = accumulator(request_bytes_max=1 << 20)
    fill(made, *[b"x"] * 10)
    made.add("a", Record(b"v", key=b"k"), now=0.0)
    pending = made.hurry()
    batch = take(made)
    assert (11, [11, 0, 0], False) == (len(batch.records), [len(one.records) for one in pending], batch.plain)
    made.give_up(batch, TooLargeError())
    assert [batch] == made.take_failed()
    assert (made.buffer_bytes_max, False) == (made.room, made.is_occupied())


def test_sequences_go_on_where_a_batch_was_refused_for_sure() -> None:
    made = accumulator()
    fill(made, *[b"%d" % number for number in range(10)])
    refused = take(made)
    made.give_up(refused, TooLargeError())
    assert 0 == take(made).sequence.seq
    assert [refused] == made.take_failed()


def test_a_batch_given_up_in_doubt_costs_the_lane_its_identity() -> None:
    """Its sequence may have been stored: used again, it would make the next batch vanish as a duplicate."""
    made = accumulator()
    fill(made, *[b"%d" % number for number in range(10)])
    doubtful = take(made)
    doubtful.doubtful = True
    made.give_up(doubtful, OutcomeUnknownError())
    following = made.take_ready(100.0)
    assert following.lane.identity is None
    made.renew(following.lane, producer_id=8, producer_epoch=0)
    assert (8, 0) == (made.assign_sequence(following).producer_id, following.sequence.seq)


def test_the_buffer_is_bounded_and_counts_failed_records_until_they_are_taken_over() -> None:
    size = record_size(b"x" * 36)
    assert 100 == size
    made = accumulator(buffer_bytes_max=350)
    fill(made, b"x" * 36, b"x" * 36, b"x" * 36)
    assert made.try_add("a", b"x" * 36) is None
    assert made.add("a", b"x" * 36, now=0.0) is None
    assert 50 == made.room
    made.give_up(take(made), TooLargeError())
    assert 50 == made.room
    made.take_failed()
    assert 350 == made.room


def test_empty_records_count_too() -> None:
    made = accumulator(buffer_bytes_max=RECORD_OVERHEAD_BYTES * 3, batch_bytes_max=1 << 20, batch_records_max=1_000)
    fill(made, b"", b"", b"")
    assert made.add("a", b"", now=0.0) is None


def test_a_record_over_the_batch_size_travels_alone() -> None:
    made = accumulator()
    fill(made, b"small", b"x" * 5_000, b"small")
    assert [1, 1, 1] == [len(batch.records) for batch in made.pending()]


def test_records_without_key_stick_to_a_partition_per_batch_and_then_take_turns() -> None:
    made = accumulator(partitions=3)
    fill(made, *[b"x"] * 30)
    assert {0: 10, 1: 10, 2: 10} == {partition: sum(len(batch.records) for batch in made.pending() if batch.lane.partition.partition == partition)
                                     for partition in range(3)}


def test_records_without_key_avoid_a_partition_that_fails_while_another_works() -> None:
    made = accumulator(partitions=2)
    fill(made, b"1")
    made.retry(take(made), OutcomeUnknownError(), not_before=1_000.0)
    fill(made, *[b"x"] * 10)
    assert {0: 1, 1: 10} == {partition: sum(len(batch.records) for batch in made.pending() if batch.lane.partition.partition == partition)
                             for partition in range(2)}


def test_a_key_decides_and_a_partition_decides_before_it() -> None:
    made = accumulator(partitions=4)
    made.add("a", Record(b"v", key=b"k"), now=0.0)
    made.add("a", Record(b"v", key=b"k"), partition=3, now=0.0)
    assert sorted({partition_for(b"k", 4), 3}) == sorted(batch.lane.partition.partition for batch in made.pending())


def test_records_of_one_partition_keep_their_order_with_and_without_keys() -> None:
    made = accumulator()
    fill(made, b"1")
    made.add("a", Record(b"2", key=b"k"), now=0.0)
    made.try_add("a", b"3")
    batch = take(made)
    assert [b"1", Record(b"2", key=b"k"), b"3"] == batch.records
    assert not batch.plain


@pytest.mark.parametrize("partition", [-1, 1, 2**31, 2**63])
def test_a_partition_that_is_not_there_is_refused_and_names_the_count(partition: int) -> None:
    with pytest.raises(UnknownPartitionError, match="has 1 partitions"):
        accumulator().add("a", b"v", partition=partition, now=0.0)


def test_a_topic_that_is_not_registered_is_refused() -> None:
    with pytest.raises(UnknownTopicError):
        accumulator().add("b", b"v", now=0.0)


def test_a_batch_that_waits_too_long_expires_but_not_while_in_flight() -> None:
    made = accumulator(delivery_timeout_seconds=60.0)
    fill(made, *[b"x"] * 10)
    first = take(made)
    assert [] == made.take_expired(60.0)
    made.retry(first, OutcomeUnknownError(), not_before=61.0)
    assert 2 == len(made.take_expired(60.0))


def test_hurry_makes_everything_ready_and_returns_what_is_under_way() -> None:
    made = accumulator(linger_seconds=100.0, partitions=2)
    fill(made, b"1", partition=0)
    fill(made, b"2", partition=1)
    assert made.take_ready(0.0) is None
    assert 2 == len(made.hurry())
    assert {b"1", b"2"} == {made.take_ready(0.0).records[0], made.take_ready(0.0).records[0]}


def test_abandon_takes_everything_back_and_a_late_landing_is_not_ours() -> None:
    made = accumulator()
    fill(made, *[b"x"] * 7)
    flying = take(made)
    assert 7 == sum(len(batch.records) for batch in made.abandon())
    assert not made.holds(flying)
    assert made.buffer_bytes_max == made.room
    assert not made.is_occupied()


def test_more_partitions_are_used_once_they_are_known() -> None:
    made = accumulator()
    made.set_partitions("a", 2)
    made.set_partitions("a", 1)
    fill(made, b"v", partition=1)
    assert {"a": 7} == made.producer_ids()
