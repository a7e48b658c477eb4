"""Lets a consumer read what its group gives it: partitions come and go with the group's generations.

A partition that goes is not handed out any more, what is done of it is committed, and only then it is released; one that comes is
claimed first, which also tells where the group stands in it. Who was not heard by the group for a whole session reads on with nothing: another
member may read it by then.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from ..errors import MemberFencedError, MyQueueError, UnknownGroupError, UnknownMemberError
from ..protocol.types import TopicPartition
from .connection import Connection
from .fetcher import Fetcher, Reader
from .membership import Membership, Share, failed_for_good
from .slow_start import SlowStart

STEPS_MAX = 10  # of one turn: each releases what the one before was told to
log = logging.getLogger(__name__)


class GroupReading:
    """Used by the group's own thread, and by whoever commits.

    Args:
        changed: the fetcher's lock.
        on_readers: called with the lock held when partitions have come.
        on_gone: called with the lock held with the partitions that went.
        on_suspect: called with the lock held with a partition, an offset, and how many members died with that message alone in their hands. Where
            it is left out nothing is announced and nobody is told.
    """

    def __init__(self, membership: Membership, connection: Connection, fetcher: Fetcher, changed: threading.Condition, *,
                 on_readers: Callable[[], None], on_gone: Callable[[set], None],
                 on_suspect: Callable[[TopicPartition, int, int], None] | None = None) -> None:
        self.membership = membership
        self._connection, self._fetcher, self._changed = connection, fetcher, changed
        self._on_readers, self._on_gone, self._on_suspect = on_readers, on_gone, on_suspect
        self._committing = threading.Lock()  # so that what is said last is what was announced last
        self._turn = threading.Lock()  # one turn at a time
        self.failure: MyQueueError | None = None  # the group cannot be joined any more

    def begin(self, timeout_seconds: float) -> None:
        """Join, and begin to read what there is to read. Raises MyQueueError."""
        share = self._connection.persistently(self.membership.join, timeout_seconds)
        with self._turn:
            self._connection.persistently(lambda: self._follow(share), timeout_seconds)

    def beat(self) -> None:
        """One heartbeat, and what follows from its answer. Raises MyQueueError: the next one comes soon."""
        with self._turn:
            if self.membership.has_left:
                return
            try:
                share = self.membership.beat()
            except (UnknownMemberError, UnknownGroupError) as error:
                log.warning("%s; joining again", error.message)
                self._drop(list(self._fetcher.readers.values()))
                share = self._join_again()
            except MyQueueError:
                if self.membership.is_silenced:
                    self._drop(list(self._fetcher.readers.values()))
                raise
            self._follow(share)

    def commit(self, readers: list[Reader]) -> None:
        """Commit what is done of these partitions in one call. Raises MyQueueError."""
        with self._committing:
            wanted = [(reader, offset) for reader in readers if (offset := reader.progress.to_commit()) is not None]
            if wanted:
                self._commit(wanted, {reader.partition: reader.slow_start.end_beside(offset) for reader, offset in wanted if reader.slow_start})

    def let_go(self, readers: list[Reader]) -> None:
        """Commit what is done of these partitions, and that nothing of them is in this member's hands any more. Raises MyQueueError."""
        with self._committing:
            self._settle(readers)
            for reader in readers:
                reader.slow_start = None

    def settle(self, reader: Reader) -> None:
        """All that was handed out of a partition is done: commit that, and that nothing is in this member's hands now. Raises MyQueueError."""
        with self._committing:
            self._settle([reader])

    def _settle(self, readers: list[Reader]) -> None:
        wanted = [(reader, reader.progress.done_up_to) for reader in readers if reader.progress.to_commit() is not None or reader.is_announced]
        if wanted:
            self._commit(wanted, {})
        for reader, offset in wanted:
            if reader.slow_start is not None:
                reader.slow_start.announced_end = offset

    def announce(self, reader: Reader, offset: int) -> None:
        """Before a message is handed out: commit what is done and, where that is due, say up to where messages are in this member's hands.

        What cannot be said is not said: messages are handed out all the same, and the deaths of who has them are not counted.
        """
        with self._committing:
            slow_start = reader.slow_start
            if slow_start is None or (end := slow_start.due(offset)) is None:
                return
            if slow_start.is_over or self._fetcher.readers.get(reader.partition) is not reader:
                reader.slow_start = None
                return
            try:
                self._commit([(reader, reader.progress.done_up_to)], {reader.partition: end})
                slow_start.announced(end, offset)
            except MyQueueError as error:
                reader.slow_start = None
                log.info("%s is handed out without a word before: %s", reader.partition, error.message)

    def _commit(self, wanted: list[tuple[Reader, int]], handed: Mapping[TopicPartition, int | None]) -> None:
        self.membership.commit({reader.partition: offset for reader, offset in wanted}, max(reader.claimed_in for reader, _ in wanted), handed)
        for reader, offset in wanted:
            reader.progress.committed = offset

    def _join_again(self) -> Share:
        try:
            share = self.membership.join()
            self.failure = None
            return share
        except MyQueueError as error:
            if failed_for_good(error):
                with self._changed:
                    self.failure = error
                    self._changed.notify_all()
            raise

    def _follow(self, share: Share) -> None:
        for _ in range(STEPS_MAX):
            self._let_go(share)
            if not share.releasing:
                break
            share = self.membership.beat(share.releasing)
        self._take_up(share)

    def _let_go(self, share: Share) -> None:
        gone = [reader for reader in list(self._fetcher.readers.values()) if share.reads.get(reader.partition) != reader.claimed_in]
        self._drop(gone)
        releasing = set(share.releasing)
        try:
            self.let_go([reader for reader in gone if reader.partition in releasing])
        except MyQueueError as error:
            log.warning("the last commit of partitions that go to another member failed, messages since the one before it may come again: %s",
                        error.message)

    def _take_up(self, share: Share) -> None:
        new = [partition for partition in share.reads if partition not in self._fetcher.readers]
        if not new:
            return
        try:
            claimed = self.membership.claim(share, new)
        except MemberFencedError as error:
            log.info("the next heartbeat tells what this member reads: %s", error.message)
            return
        with self._changed:
            for partition in new:
                reader = Reader(partition, 0, "")
                reader.claimed_in = share.reads[partition]
                found = claimed[partition]
                reader.begin(found.offset, found.offset)
                if self._on_suspect is not None:
                    reader.slow_start = SlowStart(found.suspect_end)
                    if found.deaths:
                        self._on_suspect(partition, found.offset, found.deaths)
                self._fetcher.add(reader)
            self._on_readers()
            self._changed.notify_all()

    def _drop(self, readers: list[Reader]) -> None:
        if readers:
            with self._changed:
                for reader in readers:
                    self._fetcher.remove(reader)
                self._on_gone({reader.partition for reader in readers})
                self._changed.notify_all()
