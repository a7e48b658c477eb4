"""A partition's log as a decision reads it, in SQL: the ends from the head row, everything else by single index probes."""

from __future__ import annotations

from typing import Any

from myqueue.errors import LogFaultError
from myqueue.protocol.chain import EntryHead
from myqueue.protocol.types import PartitionId

from .log_store import EntryMark, Head

MARK = """SELECT topic_id, partition, lsn, epoch, kind, base_offset, record_count, append_time, producer_id, producer_epoch, producer_seq,
                 request_index, request_count, chain FROM log_entry WHERE topic_id = %s AND partition = %s AND lsn = %s"""
FIRST_OF_EPOCH = """SELECT min(lsn) FROM log_entry WHERE topic_id = %s AND partition = %s AND lsn >= %s AND epoch >= %s"""


def find_mark(cursor: Any, partition: PartitionId, lsn: int) -> EntryMark | None:
    """The entry at ``lsn`` without its columns; None where it is not held."""
    cursor.execute(MARK, (*partition, lsn))
    row = cursor.fetchone()
    return None if row is None else EntryMark(EntryHead(*row[:-1]), bytes(row[-1]))


class SqlLogView:
    """A LogView under the head row's lock. At the end of the log, where nearly every append goes, it asks nothing."""

    def __init__(self, cursor: Any, partition: PartitionId, head: Head) -> None:
        self._cursor, self._partition, self._head = cursor, partition, head
        self._marks: dict[int, EntryMark] = {}

    @property
    def start(self) -> int:
        return self._head.start_lsn

    @property
    def start_epoch(self) -> int:
        return self._head.start_epoch

    @property
    def start_chain(self) -> bytes:
        return self._head.start_chain

    @property
    def end(self) -> int:
        return self._head.end.lsn

    def mark(self, position: int) -> EntryMark:
        """The entry at a position that is held. Raises LogFaultError where a row is missing."""
        found = self._marks.get(position)
        if found is None:
            found = find_mark(self._cursor, self._partition, position)
            if found is None:
                raise LogFaultError(f"lsn {position} of partition {self._partition} is missing: the log is [{self.start}, {self.end})")
            self._marks[position] = found
        return found

    def epoch_at(self, position: int) -> int:
        return self._head.end.epoch if position == self.end - 1 else self.mark(position).head.epoch

    def chain_at(self, position: int) -> bytes:
        return self._head.end.chain if position == self.end - 1 else self.mark(position).chain

    def first_position_of_epoch(self, epoch: int) -> int:
        self._cursor.execute(FIRST_OF_EPOCH, (*self._partition, self.start, epoch))
        found = self._cursor.fetchone()[0]
        return self.end if found is None else found

    def request_start(self, position: int) -> int:
        return position if position == self.end else position - self.mark(position).head.request_index
