"""What a process knows of a partition that it leads with replicas elsewhere: who holds what, who was heard, what is committed.

Pure and volatile: a restart begins it anew, since followers say again what they hold. What must never happen: an answer of another
epoch counts, an entry is called committed that a majority of the named voters does not hold, leadership is believed without one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from db.replication import (
    AppendReply,
    Holder,
    LogView,
    Progress,
    SendPlan,
    after_reply,
    after_snapshot,
    commit_position,
    counts,
    has_majority,
    holders,
    plan_send,
)

KEPT_ENTRIES_MAX = 1_000_000  # what a follower lacks is kept for it, unless it lacks more
LEASE_SECONDS = 2.0  # for so long after a majority answered, a new entry may hope for one


@dataclass(frozen=True, slots=True)
class Heard:
    """A follower's latest answer in this epoch: to which round, asked when, by which disk."""

    round: int
    asked_at: float
    disk_id: str


class Leading:
    """One leadership.

    Args:
        voters: by broker, with the registered disks.
        learners: brokers that get the log and do not count.
        broker_id, disk_id: this replica.
        end: where the log ended when this began, its marker included.
        commit: what is known to be committed.
        began: whether all of that is committed already. It is what was ever acknowledged that has to be known, and a database that crashed
            may remember a lower commit position of this very epoch.
    """

    def __init__(self, epoch: int, voters: Mapping[int, str | None], learners: Iterable[int] = (), *, broker_id: int, disk_id: str, end: int,
                 commit: int, began: bool = False) -> None:
        self.epoch, self.voters, self.broker_id, self.disk_id = epoch, dict(voters), broker_id, disk_id
        self.commit, self.began = commit, began
        self.rounds = 0
        self.heard: dict[int, Heard] = {}
        self.answered: dict[int, float] = {}  # by follower: when what it answered last was asked, a refusal or not
        self.progress: dict[int, Progress] = {}
        self._first_guess = end
        self.set_learners(learners)

    def set_learners(self, learners: Iterable[int]) -> None:
        """Who gets the log beside the voters, from now on."""
        self.learners = tuple(learners)
        wanted = {broker for broker, disk_id in self.voters.items() if disk_id is not None} | set(self.learners)
        self.followers = tuple(sorted(wanted - {self.broker_id}))
        self.progress = {broker: self.progress.get(broker) or Progress(next=self._first_guess) for broker in self.followers}

    def begin_round(self) -> int:
        """A new round: answers to it show that we were still leading when it began."""
        self.rounds += 1
        return self.rounds

    def plan(self, target: int, log: LogView, *, entries_max: int, end: int | None = None) -> SendPlan | None:
        """The next append to a follower; None where it is behind the log's start. See ``plan_send``."""
        return plan_send(self.progress[target], log, entries_max=entries_max, end=end)

    def seeded(self, target: int, position: int) -> None:
        """The follower was offered our start."""
        self.progress[target] = after_snapshot(self.progress[target], position)

    def may_need(self, target: int) -> bool:
        """Whether what a broker's replica holds may be needed yet: of a voter always, of others until this leader has committed in its epoch."""
        return self.voters.get(target) is not None or not self.began

    def not_taken(self, target: int) -> None:
        """A follower has an append that it did not take. Of one that does not count nothing is known from now on: it is introduced again,
        since it may be damaged.
        """
        if target in self.learners and target in self.progress:
            self.progress[target] = Progress(next=self.progress[target].next)

    def lacks(self, target: int, end: int) -> bool:
        """Whether a follower is not known to hold everything up to ``end``."""
        progress = self.progress.get(target)
        return progress is not None and (progress.needs_snapshot or progress.disk_id is None or progress.next < end)

    def learn(self, source: int, reply: AppendReply, log: LogView, *, asked_at: float) -> bool:
        """Take in a follower's answer; whether the commit position rose. One of another epoch changes nothing."""
        if source not in self.progress or reply.epoch != self.epoch:
            return False
        self.answered[source] = asked_at
        if source in self.learners and self.progress[source].disk_lost:
            self.not_taken(source)  # one that does not count may have begun afresh
        before = self.heard.get(source)
        if reply.matched is not None and reply.counts and (before is None or reply.round > before.round):
            self.heard[source] = Heard(reply.round, asked_at, reply.disk_id)
        self.progress[source] = after_reply(self.progress[source], reply, epoch=self.epoch, rounds=self.rounds, log=log)
        return self.advance(log)

    def advance(self, log: LogView) -> bool:
        """Raise the commit position to what a majority holds, our own disk up to the end of ``log``; whether it rose."""
        own = self.broker_id, Holder(self.disk_id, log.end)
        commit = commit_position(self.voters, holders(own, self.progress.items()), epoch=self.epoch, log=log, commit=self.commit)
        if commit == self.commit:
            return False
        self.commit = commit
        self.began = self.began or commit >= self._first_guess
        return True

    def is_committed(self, position: int) -> None:
        """Everything below ``position`` is, whoever found out."""
        if position > self.commit:
            self.commit = position
            self.began = self.began or position >= self._first_guess

    def kept_from(self, *, heard_after: float, since: float, end: int) -> int:
        """From which position on entries are kept for followers; ``end`` where they lack nothing.

        One that was silent for long, or lacks very much, holds nothing up: it is given a start and the state there when it comes.

        Args:
            heard_after: who has not answered anything asked after this time holds nothing up.
            since: when this leadership began here; nobody can have been heard before.
            end: of the log.
        """
        alive = [progress for broker, progress in self.progress.items()
                 if self.answered.get(broker, since) >= heard_after and not progress.disk_lost]
        return min((progress.matched for progress in alive if end - progress.matched <= KEPT_ENTRIES_MAX), default=end)

    def confirmed(self, rounds: int) -> bool:
        """Whether a majority has answered a round begun after so many: nobody else led when that began."""
        return self._majority({broker for broker, heard in self.heard.items() if heard.round > rounds})

    def has_lease(self, now: float) -> bool:
        """Whether a majority has answered something asked within the lease."""
        return self._majority({broker for broker, heard in self.heard.items() if heard.asked_at > now - LEASE_SECONDS})

    def missing(self, end: int) -> dict[int, int]:
        """How many entries each follower lacks of a log that ends there, by what it has said; of one that has said nothing: all of them."""
        return {broker: max(0, end - (progress.matched or 0)) for broker, progress in self.progress.items()}

    def describe(self, now: float) -> dict[str, object]:
        """This leadership as a coordinator is told of it."""
        replicas = {str(broker): {"disk_id": progress.disk_id, "matched_lsn": progress.matched if progress.disk_id else None,
                                  "counts": progress.counts, "disk_lost": progress.disk_lost,
                                  "age_seconds": round(now - self.heard[broker].asked_at, 3) if broker in self.heard else None}
                    for broker, progress in self.progress.items()}
        return {"epoch": self.epoch, "commit_lsn": self.commit, "committed_in_epoch": self.began, "replicas": replicas}

    def _majority(self, brokers: set[int]) -> bool:
        answers = {broker: self.heard[broker].disk_id for broker in brokers if counts(self.voters, broker, self.heard[broker].disk_id)}
        return has_majority(self.voters, {**answers, self.broker_id: self.disk_id})
