"""A leader's own log as replication reads it: the newest entries from memory, as they were written, older ones from the database."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from db.log_store import EntryMark, Head, LogStore
from myqueue.errors import LogFaultError, MyQueueError, UnavailableError
from myqueue.protocol.entry import LogEnd, LogEntry
from myqueue.protocol.types import PartitionId

from .core.appends import entry_size

RECENT_BYTES_MAX = 8 << 20  # of one partition; a follower further behind is served from the database
MARKS_MAX = 64
ENDS_MAX = 512
READ_ENTRIES_MIN, READ_ENTRIES_MAX = 64, 4_096  # looked at in one read


class BeginsLaterError(UnavailableError):
    """What was asked for was dropped meanwhile: it is trimmed and committed."""


class LeaderLog:
    """A LogView of one leadership. Not safe to share between threads without a lock."""

    def __init__(self, store: LogStore, partition: PartitionId, head: Head) -> None:
        self._store, self._partition = store, partition
        self._begin = _begin_of(head)
        self._last = head.end
        self._recent: list[LogEntry] = []  # the newest entries without a gap up to the end, or none
        self._recent_bytes = 0
        self._read_entries = 256
        self._marks: OrderedDict[int, EntryMark] = OrderedDict()
        self._ends: OrderedDict[int, LogEnd] = OrderedDict({head.end.lsn: head.end})  # where groups ended: what followers mostly answer

    @property
    def start(self) -> int:
        return self._begin.lsn

    @property
    def start_epoch(self) -> int:
        return self._begin.epoch

    @property
    def start_chain(self) -> bytes:
        return self._begin.chain

    @property
    def end(self) -> int:
        return self._last.lsn

    def begin_at(self, head: Head) -> None:
        """The log begins where this head says, unless it is known to begin later. Replaced as a whole: readers need no lock."""
        if head.start_lsn > self._begin.lsn:
            self._begin = _begin_of(head)

    def extend(self, entries: Sequence[LogEntry], end: LogEnd) -> None:
        """These entries are on disk now. An end that is not above ours changes nothing."""
        if end.lsn <= self._last.lsn:
            return
        if not entries or entries[0].head.lsn != self._last.lsn:
            self.forget_recent()
        self._recent += entries
        self._recent_bytes += sum(map(entry_size, entries))
        self._last = self._ends[end.lsn] = end
        while len(self._ends) > ENDS_MAX:
            self._ends.popitem(last=False)
        while self._recent_bytes > RECENT_BYTES_MAX:
            self._drop(max(1, len(self._recent) // 4))

    def release(self, position: int) -> None:
        """Nobody asks for entries below ``position`` any more, as far as is known."""
        self._drop(max(0, min(len(self._recent), position - self._recent_start)))

    def forget_recent(self) -> None:
        """The next reads go to the database."""
        self._recent, self._recent_bytes = [], 0

    def _drop(self, count: int) -> None:
        self._recent_bytes -= sum(map(entry_size, self._recent[:count]))
        del self._recent[:count]

    @property
    def _recent_start(self) -> int:
        return self._last.lsn - len(self._recent)

    # --- LogView ---

    def epoch_at(self, position: int) -> int:
        known = self._ends.get(position + 1)
        return known.epoch if known else self._mark(position).head.epoch

    def chain_at(self, position: int) -> bytes:
        known = self._ends.get(position + 1)
        return known.chain if known else self._mark(position).chain

    def first_position_of_epoch(self, epoch: int) -> int:
        raise LogFaultError("a leader is never asked where an epoch begins")

    def request_start(self, position: int) -> int:
        return position if position == self.end else position - self._mark(position).head.request_index

    def offset_at(self, border: int) -> int:
        """The offset of the next record at a border."""
        known = self._ends.get(border)
        if known:
            return known.offset
        if border == self.start:
            return self._begin.offset
        head = self._mark(border - 1).head
        return head.base_offset + head.record_count

    def _mark(self, position: int) -> EntryMark:
        if position >= self._recent_start:
            entry = self._recent[position - self._recent_start]
            return EntryMark(entry.head, entry.chain)
        found = self._marks.get(position)
        if found is None:
            found = self._store.mark(self._partition, position)
            if found is None:
                raise self._missing(position)
            self._marks[position] = found
            while len(self._marks) > MARKS_MAX:
                self._marks.popitem(last=False)
        return found

    def _missing(self, position: int) -> MyQueueError:
        """Why the entry at a position is not there. A log's head says that it begins later before anything of it goes."""
        self.begin_at(self._store.head(self._partition))
        if position < self.start:
            return BeginsLaterError(f"partition {self._partition} begins at lsn {self.start} now")
        return LogFaultError(f"lsn {position} of partition {self._partition} is missing: the log is [{self.start}, {self.end})")

    # --- entries ---

    def recent(self, first: int, *, bytes_max: int) -> Sequence[LogEntry] | None:
        """Entries from ``first`` on, where a request begins, from memory: as many as fit, at least that request if there is one; None where memory
        begins later.
        """
        if first < self._recent_start:
            return None
        found, size, count = self._recent[first - self._recent_start:], 0, 0
        for entry in found:
            size += entry_size(entry)
            if size > bytes_max and count >= found[0].head.request_count:
                break
            count += 1
        return found[:count]

    def stored(self, first: int, end: int, *, bytes_max: int) -> Sequence[LogEntry]:
        """Entries from ``first`` on below ``end`` from the database, as many as fit, at least one. Needs no lock: what is stored stays.

        Raises:
            BeginsLaterError: it was dropped meanwhile.
            LogFaultError: one of them is missing.
        """
        asked = min(end - first, self._read_entries)
        found = self.exactly(first, first + asked, bytes_max=bytes_max)
        size = sum(map(entry_size, found))
        # The store looks at every row it is asked for, so about as many are asked for as will fit.
        likely = READ_ENTRIES_MAX if len(found) == asked and size < bytes_max // 2 else len(found) * bytes_max // max(1, size)
        self._read_entries = max(READ_ENTRIES_MIN, min(READ_ENTRIES_MAX, likely))
        return found

    def exactly(self, first: int, end: int, *, bytes_max: int = 1 << 40) -> Sequence[LogEntry]:
        """As ``stored``, with a bound on the entries that are looked at instead of a guess."""
        found = self._store.entries(self._partition, first, end, bytes_max=bytes_max)
        if not found or found[0].head.lsn != first or found[-1].head.lsn != first + len(found) - 1:
            raise self._missing(first)
        return found


def _begin_of(head: Head) -> LogEnd:
    return LogEnd(head.start_lsn, head.start_offset, head.start_epoch, head.start_chain)
