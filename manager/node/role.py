"""What the worker processes of one manager know together, of who leads and how far they are: a few shared bytes, mapped before the workers fork.

It is a hint for routing and for timers, never what a decision rests on: that is the row ``raft_state`` under its lock. The
fields are written one after the other, so another process may for a moment see one of them old; all that can cost is
a look at the wrong manager, one election timeout, or, of the index that is shown, a moment's wait.
"""

from __future__ import annotations

import mmap

from manager.raft.state import Contact
from myqueue.clock import Clock
from myqueue.errors import UnavailableError

_TERM, _LEADER, _LED_TERM, _READ, _READ_INDEX, _HANDED_OVER, _HANDING_OVER, _LEAVING, _LIFE, _SHOWN = range(10)  # integers
_CONTACT_AT, _LEADER_AT, _SINCE = range(10, 13)  # moments of the monotonic clock, which all processes of the machine share
_FIELDS = 13


class Role:
    """Who leads, as one manager knows it. Make one in the master process, before the fork."""

    def __init__(self, node_id: int, clock: Clock, *, leader_kept_seconds: float) -> None:
        """
        Args:
            leader_kept_seconds: silence after which a leader is not believed to lead any more.
        """
        memory = memoryview(mmap.mmap(-1, _FIELDS * 8))
        self._numbers, self._moments = memory.cast("q"), memory.cast("d")
        self.node_id, self._clock, self._leader_kept_seconds = node_id, clock, leader_kept_seconds
        self._moments[_CONTACT_AT] = self._moments[_SINCE] = clock.monotonic()

    # --- what is asked ---

    @property
    def is_write_manager(self) -> bool:
        """Whether this manager leads."""
        return self._numbers[_LED_TERM] != 0

    @property
    def led_term(self) -> int:
        """The term in which this manager leads; 0 where it does not."""
        return self._numbers[_LED_TERM]

    @property
    def term(self) -> int:
        """The last term in which a leader was known here."""
        return self._numbers[_TERM]

    def leader(self) -> int | None:
        """Who leads, if that was heard lately."""
        if self.is_write_manager:
            return self.node_id
        return self._numbers[_LEADER] or None if self.silence_seconds() <= self._leader_kept_seconds else None

    def require_leader(self) -> int:
        """Raises UnavailableError where nobody is known to lead."""
        leader = self.leader()
        if leader is None:
            raise UnavailableError("no write manager is known now: the managers have not elected one; nothing was done", component="managers")
        return leader

    def silence_seconds(self) -> float:
        """How long ago a leader was heard, that is how old the metadata here may be; 0 on the leader, infinite before the first."""
        if self.is_write_manager:
            return 0.0
        heard = self._moments[_LEADER_AT]
        return max(0.0, self._clock.monotonic() - heard) if heard else float("inf")

    @property
    def is_cut_off(self) -> bool:
        """Whether no leader was heard for longer than an election takes: each manager waits for one timeout and up to another before it stands."""
        return self.silence_seconds() > 2 * self._leader_kept_seconds

    def leading_seconds(self) -> float:
        """For how long this manager has led; where it does not lead: since it stopped, or was started."""
        return max(0.0, self._clock.monotonic() - self._moments[_SINCE])

    def contact(self) -> Contact:
        """The last sign of a leader or vote given, for the elections' timers; and of a hand-over."""
        return Contact(self._moments[_CONTACT_AT], self._numbers[_LEADER] or None, self._numbers[_HANDED_OVER], self._numbers[_HANDING_OVER],
                       bool(self._numbers[_LEAVING]))

    @property
    def is_chosen(self) -> bool:
        """Whether the leader that was heard last wants this manager to follow it at once."""
        return self._numbers[_HANDED_OVER] >= max(1, self.term)

    @property
    def is_handing_over(self) -> bool:
        """Whether this manager leads and is about to hand that over: it takes no commands."""
        return self._numbers[_HANDING_OVER] != 0

    @property
    def life(self) -> int:
        """The highest life number that a process of this manager has seen on its own disk, since the manager was started."""
        return self._numbers[_LIFE]

    @property
    def shown_index(self) -> int:
        """What is applied up to here was announced: nobody who looks from now on finds what he kept in memory to be older. 0 at the start."""
        return self._numbers[_SHOWN]

    # --- what is noted, always after the commit ---

    def note_contact(self, contact: Contact, term: int) -> None:
        """A request of a leader was taken, or a vote was given."""
        self._numbers[_LEADER] = contact.leader or 0
        if contact.leader is not None:
            self._numbers[_TERM] = term
            self._moments[_LEADER_AT] = contact.at
        self._numbers[_HANDED_OVER] = max(contact.handed_over, self._numbers[_HANDED_OVER])  # who noted another contact may not have seen it
        self._moments[_CONTACT_AT] = contact.at

    def lead(self, term: int) -> None:
        """This manager leads from now on."""
        self._numbers[_TERM] = term
        self._moments[_SINCE] = self._clock.monotonic()
        self._numbers[_LED_TERM] = term

    def hand_over(self, term: int) -> None:
        """The term that this manager leads and hands over; 0: none (any more)."""
        self._numbers[_HANDING_OVER] = term

    def leave(self, leaving: bool) -> None:
        """Whether the process that drives this manager is about to end."""
        self._numbers[_LEAVING] = leaving

    def stop_leading(self) -> None:
        """This manager does not lead any more. What it reads was fresh at least until a majority could have left it."""
        if self.is_write_manager:
            now = self._clock.monotonic()
            self._moments[_LEADER_AT] = now - self._leader_kept_seconds
            self._moments[_SINCE] = now
            self._numbers[_LED_TERM] = self._numbers[_LEADER] = self._numbers[_HANDING_OVER] = 0

    def note_life(self, life: int) -> None:
        """Called under the lock of ``raft_state``, so that no process notes an older number behind a newer one."""
        self._numbers[_LIFE] = life

    def show(self, index: int) -> None:
        """All that is applied up to here is announced. By the driver: if it is behind what it finds, another one ended before it had said so."""
        self._numbers[_SHOWN] = index

    # --- fresh reads: the driver confirms them for all processes ---

    def confirm_read(self, asked: int, index: int) -> None:
        """Whoever asked at or before the stamp ``asked`` reads fresh once ``index`` is applied."""
        self._numbers[_READ_INDEX] = index
        self._numbers[_READ] = asked

    def confirmed_read(self) -> tuple[int, int]:
        """(stamp, index) of the last confirmed read."""
        asked = self._numbers[_READ]
        return asked, self._numbers[_READ_INDEX]
