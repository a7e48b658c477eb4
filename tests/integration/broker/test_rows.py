"""What lies in PostgreSQL: rows, chain, view, range function, segments, and any bytes through a real COPY."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg2
import pytest
from hypothesis import HealthCheck, given, settings
from sqlalchemy import event

from broker.core.admission import admit
from broker.core.append import AppendRequest
from broker.core.offsets import CommitRequest, TrimRequest
from db import consumers, producers
from db.engine import libpq_url, make_engine
from db.folding import wanted_sql
from db.log_store import HeadMovedError, LogBusyError, Remembered, Wanted
from db.memory_log import MemoryLogStore
from db.postgres_log import FOLLOWED_BYTES_MIN, PREPARE, READ, SET_END, PostgresLogStore
from db.segments import RollPolicy
from myqueue.errors import CorruptBatchError, TooLargeError, UnavailableError
from myqueue.protocol.batch import BLOCK_BYTES_MAX, messages_of, pack, records_of
from myqueue.protocol.chain import GENESIS, EntryHead, entry_chain
from myqueue.protocol.entry import LogEnd, record_entries
from myqueue.protocol.fold import ConsumerState, LogState
from myqueue.protocol.types import PartitionId, Record
from tests.contract.test_log_store import EVERYTHING, append, begin, begin_later, expecting, fill, known, roll, values, write
from tests.property.strategies import batches, damaged, framed
from tests.support.factories import PARTITION, blocks, record_blocks, sequence
from tests.support.waiting import wait_until

RECORDS = [Record(b"v1", b"k", (("h", b"x"), ("none", None)), 1_700_000_000_000_000),
           Record(b"\0\xff"), Record(b"", b"", (), 0), Record(b"z" * 9_000)]
ENTRY = """SELECT topic_id, partition, lsn, epoch, kind, base_offset, record_count, append_time, producer_id, producer_epoch, producer_seq,
                  request_index, request_count, chain, substring(array_send(keys) FROM 21), substring(array_send("values") FROM 21),
                  substring(array_send(headers) FROM 21), substring(array_send(timestamps) FROM 21), body
           FROM log_entry WHERE topic_id = 1 AND partition = 0 ORDER BY lsn"""
CHAIN_IN_SQL = """SELECT lsn, chain = entry_chain(coalesce(lag(chain) OVER (ORDER BY lsn), decode(repeat('00', 32), 'hex')), e)
                  FROM log_entry e WHERE topic_id = 1 AND partition = 0 ORDER BY lsn"""


@pytest.fixture
def store(broker_database: str) -> Iterator[PostgresLogStore]:
    engines = [make_engine(broker_database, application_name="tests", pool_size=4) for _ in range(2)]
    store = PostgresLogStore(*engines)
    begin(store, PARTITION)
    yield store
    for engine in engines:
        engine.dispose()


def rows(store: PostgresLogStore, statement: str, *parameters: object) -> list[tuple]:
    with store.transaction() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall()


def test_sql_and_python_compute_the_same_chain(store: PostgresLogStore):
    """Replicas, audit and broker use one formula: on real rows of every kind, with NULLs, producers and several blocks."""
    write(store, AppendRequest(record_blocks(RECORDS), sequence(0)))
    append(store, b"a", b"\xff\xff\xff\xff", seq=1)
    write(store, CommitRequest("#1", 3))
    write(store, TrimRequest(2))
    checked = rows(store, CHAIN_IN_SQL)
    assert checked == [(lsn, True) for lsn in range(store.head(PARTITION).end.lsn)]
    assert len(checked) >= 5
    chain = GENESIS
    for *head, stored, keys, items, headers, timestamps, body in rows(store, ENTRY):
        columns = [None if column is None else bytes(column) for column in (keys, items, headers, timestamps, body)]
        chain = entry_chain(chain, EntryHead(*head), *columns)
        assert bytes(stored) == chain
    assert store.head(PARTITION).end.chain == chain


def test_a_flipped_bit_breaks_the_chain(store: PostgresLogStore):
    """A damaged byte is found at its entry."""
    append(store, b"one")
    append(store, b"two")
    with store.transaction() as cursor:
        cursor.execute("""UPDATE log_entry SET "values" = ARRAY['ona'::bytea] WHERE lsn = 1""")
    assert rows(store, CHAIN_IN_SQL) == [(0, True), (1, False), (2, True)]


MUCH = b"x" * FOLLOWED_BYTES_MIN


class Two:
    """A group of much, and one that is sent behind it while its commit waits for ``go``."""

    def __init__(self, store: PostgresLogStore, pool: ThreadPoolExecutor, *, meanwhile: Callable[[], object] = lambda: None) -> None:
        self._store, self._pool, self._meanwhile = store, pool, meanwhile
        self._is_over, self.is_sent, self.second = threading.Event(), threading.Event(), None

    def write(self) -> Future[Any]:
        """The first; the second's outcome."""
        known(self._store, b"0", seq=0)
        expecting(self._store, b"1", MUCH, seq=1, on_sent=self._follow)
        self._meanwhile()
        self._is_over.set()
        assert self.second is not None
        return self.second

    def _wait(self) -> None:
        assert self._is_over.wait(10)

    def _follow(self, left: Remembered) -> None:
        self.second = self._pool.submit(expecting, self._store, b"3", MUCH, seq=2, remembered=left, wait=self._wait,
                                        on_sent=lambda _: self.is_sent.set())
        assert self.is_sent.wait(10), "its rows did not go before the commit"


def test_rows_are_sent_while_the_commit_before_is_waited_for(store: PostgresLogStore):
    """And nobody sees them before; both are as if they had been written one after the other."""
    other = MemoryLogStore()
    begin(other, PARTITION)
    for seq, some in enumerate([(b"0",), (b"1", MUCH), (b"3", MUCH)]):
        append(other, *some, seq=seq, now_us=2_000 if seq else 1_000)
    with ThreadPoolExecutor(1) as pool:
        two = Two(store, pool, meanwhile=lambda: seen.append(store.head(PARTITION).end.offset))
        seen: list[int] = []
        two.write().result(10)
    assert seen == [3]
    assert store.head(PARTITION) == other.head(PARTITION)
    assert store.snapshot(PARTITION) == other.snapshot(PARTITION)
    assert all(values(store, offset) == values(other, offset) for offset in range(5))
    assert all(agrees for _, agrees in rows(store, CHAIN_IN_SQL))
    expecting(store, b"5", seq=3)
    assert store.head(PARTITION).end.offset == 6


def promise(store: PostgresLogStore) -> None:
    with store.locked(PARTITION) as held:
        held.promise(2)


@pytest.mark.parametrize("meanwhile", [promise, roll])
def test_a_log_that_moved_behind_the_commit_before_takes_nothing(store: PostgresLogStore, meanwhile: Callable[[PostgresLogStore], None]):
    with ThreadPoolExecutor(1) as pool, pytest.raises(HeadMovedError):
        Two(store, pool, meanwhile=lambda: meanwhile(store)).write().result(10)
    append(store, b"3", seq=2)
    assert [values(store, offset)[0] for offset in range(4)] == [(0, b"0"), (1, b"1"), (2, MUCH), (3, b"3")]


def test_who_gets_in_between_waits_for_no_longer_than_the_lock_does(store: PostgresLogStore):
    """Another process's entry has the number of one that was sent: it holds the log and waits for that, and what was sent is given up."""
    with ThreadPoolExecutor(2) as pool:
        def meanwhile() -> None:
            another.append(pool.submit(append, store, b"another"))
            wait_until(lambda: rows(store, "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'transactionid' AND datname = current_database()"),
                       what="the other entry to wait")

        another: list[Future[Any]] = []
        second = Two(store, pool, meanwhile=meanwhile).write()
        with pytest.raises(LogBusyError):
            second.result(10)
        assert another[0].result(10).base_offset == 3
    assert values(store, 3) == [(3, b"another")]


def test_an_entry_whose_number_is_taken_is_not_stored(store: PostgresLogStore):
    """What was sent before the log was looked at finds that others have been there."""
    known(store, b"0")
    remembered = store.remembered(PARTITION, Wanted())
    append(store, b"1")
    with pytest.raises(HeadMovedError):
        expecting(store, MUCH, remembered=remembered, wait=lambda: None)
    assert values(store) == [(0, b"0"), (1, b"1")]


def test_an_append_is_planned_once_a_connection_and_again_where_that_was_cut_short(store: PostgresLogStore):
    """Whatever the connection holds already, and whatever else was asked for between."""
    with store._connection(store._writer) as connection, connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL; PREPARE head AS SELECT 1")  # as if it had been cut short
    store._planned.clear()
    append(store, b"one", seq=0)
    write(store, CommitRequest("#1", 1))
    append(store, b"two", seq=1)
    known(store, b"three")
    expecting(store, b"four")
    assert [(0, b"one"), (1, b"two"), (2, b"three"), (3, b"four")] == values(store)
    with store._connection(store._writer) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT name, generic_plans + custom_plans > 0 FROM pg_prepared_statements ORDER BY name")
        planned = ("expect", "head", "head_and_producers", "lock_row", "put_producer", "set_commit", "set_end")
        assert cursor.fetchall() == [(name, True) for name in planned]


VERSIONS = ("UPDATE partition_state SET segment_id = segment_id", "UPDATE producer_state SET last_seq = last_seq",
            "UPDATE consumer_offset SET lsn = lsn")


def test_what_somebodys_old_snapshot_keeps_alive_is_not_read_through_by_every_append(store: PostgresLogStore):
    """Versions of the head's rows cannot go while a transaction is left open: an append still finds, and writes, the newest in a few pages."""
    append(store, b"one", seq=0)
    write(store, CommitRequest("#1", 0))
    with store._connection(store._reader) as holder, holder.cursor() as held:
        held.execute("SET idle_in_transaction_session_timeout = 0; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM partition_state")
        rows(store, f"DO $$ BEGIN FOR number IN 1..3000 LOOP {'; '.join(VERSIONS)}; END LOOP; END $$; SELECT 1")
        append(store, b"two", seq=1)
        write(store, CommitRequest("#1", 1))
        with store.transaction() as cursor:
            cursor.execute(f"ANALYZE partition_state, partition_commit, producer_state, consumer_offset; {PREPARE}")
            pages = {}
            for table in ("partition_state", "producer_state", "consumer_offset"):
                cursor.execute("SELECT pg_relation_size(%s::regclass) / 8192", (table,))
                pages[table] = cursor.fetchone()[0]
            looked_at = {}
            place = {"topic_id": PARTITION.topic_id, "partition": PARTITION.partition}
            consumer = f"SELECT {wanted_sql(Wanted(consumers=frozenset({'#1'})))}"
            producer_id = sequence(0).producer_id
            head, state = store.head(PARTITION), store.snapshot(PARTITION).state
            for name, statement, values in (
                    ("lock", "EXECUTE lock_row (%(topic_id)s, %(partition)s)", place),
                    ("head", "EXECUTE head_and_producers (%(topic_id)s, %(partition)s, %(producers)s)", place | {"producers": [producer_id]}),
                    ("consumer", consumer, place | {"consumers": ["#1"]}),
                    ("end", SET_END, (*PARTITION, *head.end[:4], head.end.append_time, 1)),
                    *((f"state {number}", *statement) for number, statement in enumerate(
                        producers.statements(PARTITION, state.producers, stored=state.producers)
                        + consumers.statements(PARTITION, state.consumers, {}, stored=state.consumers)))):
                cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", values)
                plan = cursor.fetchone()[0][0]["Plan"]
                looked_at[name] = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
            cursor.execute("ROLLBACK; BEGIN")
        held.execute("ROLLBACK")
    assert min(pages.values()) > 20, pages
    assert len(looked_at) == 6
    assert max(looked_at.values()) < 20, looked_at


def test_the_view_shows_committed_messages(store: PostgresLogStore):
    """One row a message, with the client's time where it gave one; nothing that is not committed."""
    write(store, AppendRequest(record_blocks(RECORDS)))
    append(store, b"not yet", committed=False)
    found = rows(store, "SELECT topic, msg_offset, key, value, extract(epoch FROM ts)::bigint, epoch FROM messages ORDER BY msg_offset")
    assert [(topic, offset, key and bytes(key), bytes(value), epoch) for topic, offset, key, value, _, epoch in found] == [
        ("t", number, record.key, record.value, 1) for number, record in enumerate(RECORDS)]
    assert found[0][4] == 1_700_000_000


def test_messages_between_reads_its_range_only(store: PostgresLogStore):
    """Any range of offsets, over blocks and segments, committed only."""
    for number in range(12):
        append(store, *(b"%d" % (number * 5 + place) for place in range(5)))
        if number in (3, 7):
            store.maintain_segments(RollPolicy(1, 1e9))
    append(store, b"not yet", committed=False)
    for first, end in [(0, 60), (0, 1), (59, 100), (7, 8), (18, 42), (20, 20), (60, 70), (-5, 3)]:
        found = rows(store, "SELECT msg_offset, value FROM messages_between(1, 0, %s, %s)", first, end)
        expected = range(max(0, first), min(60, end))
        assert [(offset, bytes(value)) for offset, value in found] == [(number, b"%d" % number) for number in expected]


def test_neither_view_nor_function_shows_what_is_trimmed(store: PostgresLogStore):
    """In the middle of a block, and beyond what is committed nothing changes."""
    for number in range(4):
        append(store, *(b"%d" % (number * 5 + place) for place in range(5)))
        store.maintain_segments(RollPolicy(1, 1e9))
    write(store, TrimRequest(7))
    assert [offset for offset, in rows(store, "SELECT msg_offset FROM messages ORDER BY 1")] == list(range(7, 20))
    for first, end in ((0, 20), (0, 7), (6, 9), (12, 40)):
        found = rows(store, "SELECT msg_offset FROM messages_between(1, 0, %s, %s)", first, end)
        assert [offset for offset, in found] == list(range(max(7, first), min(20, end)))


def test_a_block_stays_inside_its_row(store: PostgresLogStore):
    """Full blocks are not moved out of the page: TOAST stays empty for them, whatever the sizes of the messages."""
    draw = random.Random(5)
    for size in (0, 1, 7, 100, 1_000, 2_600, 3_900):
        write(store, AppendRequest(record_blocks([Record(b"x" * size) for _ in range(200)])))
        write(store, AppendRequest(record_blocks([Record(b"x" * size, draw.choice([None, b"key"]), (), draw.choice([None, 5])) for _ in range(200)])))
    [(segment_id,)] = rows(store, "SELECT segment_id FROM segment WHERE state = 'open'")
    [(toast_bytes,)] = rows(store, "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE relname = %s", f"log_segment_{segment_id}")
    assert toast_bytes == 0
    [(largest,)] = rows(store, 'SELECT max(pg_column_size("values")) FROM log_entry')
    assert BLOCK_BYTES_MAX / 2 < largest <= BLOCK_BYTES_MAX


def test_segments_roll_by_size_and_reads_go_on(store: PostgresLogStore):
    """A new segment takes what comes next, notes where each partition begins in it, and every offset is still found."""
    other = PartitionId(1, 1)
    begin(store, other)
    policy = RollPolicy(64 << 10, 1e9)
    opened = []
    for number in range(12):
        append(store, *(b"%d" % number * 400 for _ in range(40)), partition=PARTITION)
        append(store, b"other", partition=other)
        opened += store.maintain_segments(policy)
    assert len(opened) >= 3
    states = dict(rows(store, "SELECT state, count(*) FROM segment GROUP BY state"))
    assert (states["open"], states["sealed"]) == (1, len(opened))
    starts = rows(store, "SELECT partition, segment_id, first_lsn, first_offset FROM segment_start ORDER BY 1, 2")
    for number in (0, 1):
        mine = [start for start in starts if start[0] == number]
        assert mine[0][2:] == (0, 0)
        assert mine == sorted(mine, key=lambda start: start[2])
    assert {offset for first in range(0, 480, 13) for offset, _ in values(store, first)} == set(range(480))
    assert values(store, 479)[-1] == (479, b"11" * 400)


def test_a_spare_is_made_ahead(store: PostgresLogStore):
    """From half of its size on, a segment has a successor ready, once; the writer never makes a table."""
    append(store, *(b"x" * 1_000 for _ in range(60)))
    policy = RollPolicy(100 << 10, 1e9)
    for _ in range(2):
        assert store.maintain_segments(policy) == []
        assert rows(store, "SELECT count(*) FROM segment WHERE state = 'spare'") == [(1,)]
    append(store, *(b"x" * 1_000 for _ in range(60)))
    [(spare,)] = rows(store, "SELECT segment_id FROM segment WHERE state = 'spare'")
    assert store.maintain_segments(policy) == [spare]


def test_an_old_segment_is_rolled(store: PostgresLogStore):
    """By age too, but never an empty one."""
    policy = RollPolicy(1 << 40, 0.0)
    store.create(PartitionId(2, 0), topic="empty", config={})
    append(store, b"a")
    assert len(store.maintain_segments(policy)) == 1
    assert rows(store, "SELECT count(*) FROM segment WHERE topic_id = 2") == [(1,)]
    assert store.maintain_segments(policy) == []


def test_a_dropped_topic_gives_the_disk_back(store: PostgresLogStore):
    append(store, b"a")
    store.maintain_segments(RollPolicy(1, 1e9))
    store.drop(1)
    assert rows(store, "SELECT relname FROM pg_class WHERE relname LIKE 'log_segment_%%'") == []
    assert rows(store, "SELECT count(*) FROM segment") == [(0,)]


def segments(store: PostgresLogStore) -> list[str]:
    return [name for name, in rows(store, "SELECT relname FROM pg_class WHERE relname ~ '^log_segment_[0-9]+$' ORDER BY oid")]


def test_a_segment_is_dropped_when_no_log_begins_in_it(store: PostgresLogStore):
    """A partition that still needs it keeps it; rows that no head speaks of are shown to nobody meanwhile."""
    other = PartitionId(1, 1)
    begin(store, other)
    fill(store, 2, 2)
    append(store, b"other", partition=other)
    first, second = segments(store)
    write(store, TrimRequest(4))
    assert store.may_begin_later() == [PARTITION]
    assert begin_later(store) is not None
    assert store.drop_segments() == []
    assert rows(store, "SELECT count(*) FROM log_entry WHERE partition = 0 AND lsn < 3") == [(3,)]
    assert rows(store, "SELECT msg_offset FROM messages WHERE partition = 0") == []
    store.maintain_segments(RollPolicy(1, 1e9))
    write(store, TrimRequest(1), partition=other)
    for partition in store.may_begin_later():
        begin_later(store, partition=partition)
    assert len(store.drop_segments()) == 2
    assert not {first, second} & set(segments(store))
    assert append(store, b"next").base_offset == 4
    assert append(store, b"next", partition=other).base_offset == 1
    assert values(store, 4) == [(4, b"next")]


def test_a_segment_that_is_read_is_left_for_the_next_time(store: PostgresLogStore, broker_database: str):
    """A drop waits for nobody longer than a moment, so that nobody waits behind it; writers are not concerned at all."""
    fill(store, 2, 1)
    write(store, TrimRequest(2))
    assert begin_later(store) is not None
    first, _ = segments(store)
    reading = psycopg2.connect(libpq_url(broker_database))
    try:
        with reading.cursor() as cursor:
            cursor.execute(f"SELECT count(*) FROM {first}")
            assert store.drop_segments() == []
            assert append(store, b"x").base_offset == 3
    finally:
        reading.close()
    assert len(store.drop_segments()) == 1
    assert first not in segments(store)


def test_a_fold_that_is_under_way_leaves_nothing_in_a_log_that_begins_anew(store: PostgresLogStore, broker_database: str):
    """What it writes is not visible yet when the replica is given its state: it is waited for, and forgotten with the rest."""
    append(store, b"a")
    folding = psycopg2.connect(libpq_url(broker_database))

    def begin_anew() -> None:
        with store.locked(PARTITION) as held:
            held.begin_anew(LogEnd(50, 40, 1, bytes(32), 9), LogState(consumers={"#new": ConsumerState(3, 0, 4, 5)}), 60)

    thread = threading.Thread(target=begin_anew)
    try:
        with folding.cursor() as cursor:
            cursor.execute("SELECT 1 FROM partition_commit WHERE topic_id = 1 AND partition = 0 FOR UPDATE")
            cursor.execute("INSERT INTO consumer_offset VALUES (1, 0, '#old', 1, 0, 1, 5)")
        thread.start()
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        wait_until(lambda: rows(store, waiting), what="the other transaction to wait")
        folding.commit()
    finally:
        folding.close()
        thread.join(10)
    assert rows(store, "SELECT consumer FROM consumer_offset") == [("#new",)]
    head = store.head(PARTITION)
    assert (head.start_lsn, head.end.lsn, head.seeding_until, head.applied_lsn) == (50, 50, 60, 50)


def test_a_writer_that_learnt_of_a_segment_before_it_was_sealed_keeps_it(store: PostgresLogStore):
    """It holds the log, the segment is sealed and looks abandoned: what it then writes there is found."""
    with store.locked(PARTITION) as held:  # the segment is empty but for the marker of another log
        rows(store, "UPDATE segment SET state = 'sealed' WHERE state = 'open' RETURNING segment_id")
        rows(store, "DELETE FROM segment_start RETURNING segment_id")
        entries, end = record_entries(PARTITION, held.head.end, epoch=1, append_time=200, blocks=blocks(b"late"), sequence=None)
        held._segment = None
        held.append(entries, end)
        held.commit(end.lsn, end.offset, LogState())
        assert store.drop_segments() == [], "it is being written to"
    assert store.drop_segments() == [], "a log begins in it"
    assert values(store) == [(0, b"late")]


def test_segments_are_looked_at_while_one_is_dropped(store: PostgresLogStore, broker_database: str):
    """A table whose drop commits in that very moment has no size any more; that is no reason to stumble."""
    append(store, b"a")
    [(segment_id,)] = rows(store, "SELECT segment_id FROM segment WHERE state = 'open'")
    dropping = psycopg2.connect(libpq_url(broker_database))
    try:
        with dropping.cursor() as cursor, ThreadPoolExecutor(1) as pool:
            cursor.execute(f"DROP TABLE log_segment_{segment_id}")
            looking = pool.submit(store.maintain_segments, RollPolicy(1, 1e9))
            wait_until(lambda: rows(store, "SELECT 1 FROM pg_locks WHERE NOT granted AND database = "
                                           "(SELECT oid FROM pg_database WHERE datname = current_database())"), what="the look to wait for the drop")
            dropping.commit()
            assert looking.result(10) == []
    finally:
        dropping.close()


@pytest.mark.parametrize("bytes_max", [1, 12_000])
def test_no_table_is_made_for_a_topic_that_is_being_dropped(store: PostgresLogStore, bytes_max: int):
    """Neither a successor nor a spare: nobody would ever drop it."""
    append(store, b"a")
    [(segments,)] = rows(store, "SELECT array_agg(segment_id) FROM segment")
    assert rows(store, "DELETE FROM topic WHERE topic_id = 1 RETURNING 1") == [(1,)]
    assert store.maintain_segments(RollPolicy(bytes_max, 1e9)) == []
    assert rows(store, "SELECT array_agg(segment_id) FROM segment") == [(segments,)]


def test_connections_that_end_as_soon_as_they_are_made_are_an_error_of_ours(broker_database: str):
    """As while a server shuts down; any other error would end the worker."""
    engine = make_engine(broker_database, application_name="tests", pool_size=1)
    killer = psycopg2.connect(libpq_url(broker_database))
    killer.autocommit = True

    def kill(connection: Any, _record: object) -> None:
        with killer.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 10000)", (connection.get_backend_pid(),))

    try:
        engine.connect().close()  # the dialect asks its questions once
        engine.dispose()
        event.listen(engine, "connect", kill)
        with pytest.raises(UnavailableError), PostgresLogStore(engine, engine).locked(PARTITION):
            pass
    finally:
        killer.close()
        engine.dispose()


def test_a_reader_delays_a_drop_but_nobody_else(store: PostgresLogStore, broker_database: str):
    """A DROP that meets a lock gives up after a moment and tries again: appends to another topic go on meanwhile."""
    begin(store, PartitionId(2, 0), "other")
    append(store, b"a")
    reader = psycopg2.connect(broker_database)
    try:
        with reader.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM log_entry")
            dropping = threading.Thread(target=store.drop, args=(1,))
            dropping.start()
            for _ in range(20):
                append(store, b"b", partition=PartitionId(2, 0))
            assert dropping.is_alive()
            reader.rollback()
            dropping.join(20)
            assert not dropping.is_alive()
    finally:
        reader.close()
    assert [one.topic for one in store.held()] == ["other"]


def test_any_bytes_are_refused_or_stored_as_they_are(store: PostgresLogStore):
    """What passes the checks of the framing either is refused by PostgreSQL as a corrupt batch, or comes back as those records."""
    outcomes = {"refused": 0, "rejected": 0, "stored": 0}

    @settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
    @given(batches.flatmap(lambda records: damaged(pack(records))) | framed() | batches.map(pack))
    def send(body: bytes) -> None:
        try:
            found = admit(body)
        except (CorruptBatchError, TooLargeError):
            outcomes["refused"] += 1
            return
        before = store.head(PARTITION).end.offset
        try:
            write(store, AppendRequest(found))
        except CorruptBatchError:
            outcomes["rejected"] += 1
            assert store.head(PARTITION).end.offset == before
            return
        outcomes["stored"] += 1
        expected = [record for block in found for record in records_of(block)]
        stored = messages_of(store.read(PARTITION, before, **EVERYTHING).body, topic="t", partition=0, from_offset=before)
        assert [(one.value, one.key, one.headers) for one in stored] == [(one.value, one.key, one.headers) for one in expected]

    send()
    assert all(outcomes.values()), outcomes
    assert all(ok for _, ok in rows(store, CHAIN_IN_SQL))


def test_the_plan_of_a_read_needs_no_statistics(store: PostgresLogStore):
    """On a fresh table of many blocks, a read touches the blocks it returns, not the rest of the partition."""
    for _ in range(20):
        write(store, *[AppendRequest(blocks(b"x" * 100)) for _ in range(200)])
    [(segment_id,)] = rows(store, "SELECT segment_id FROM segment WHERE state = 'open'")
    with store.transaction() as cursor:
        cursor.execute("SELECT count(*) FROM log_entry")
        assert cursor.fetchone()[0] == 4_001
        statement = READ.format(table=f"log_segment_{segment_id}").replace("COPY (", "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ", 1)
        statement = statement.replace(") TO STDOUT (FORMAT binary)", "")
        cursor.execute(statement, {"topic_id": 1, "partition": 0, "offset": 2_000, "end": 4_000, "records_max": 50, "bytes_max": 1 << 20})
        plan = cursor.fetchone()[0][0]["Plan"]
    assert plan["Actual Rows"] == 50
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 200
