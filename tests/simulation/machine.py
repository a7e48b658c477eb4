"""A small replicated state: one counter, client sessions, the membership. Written by apply only, like the metadata tables."""

from __future__ import annotations

from dataclasses import dataclass, field

from manager.raft.log import WalEntry
from manager.raft.membership import Membership, after_command
from manager.raft.proposal import Admission, admit


@dataclass
class Machine:
    """The state at ``applied``."""

    membership: Membership
    total: int = 0
    sessions: dict[str, tuple[int, int]] = field(default_factory=dict)  # client -> (last seq, its reply)

    def apply(self, entry: WalEntry) -> None:
        """Fold one entry: a session's command once, a member command, or nothing."""
        self.membership = after_command(self.membership, entry.command, entry.index)
        if entry.client_id is None or entry.client_seq is None:
            return
        last = self.sessions.get(entry.client_id)
        if admit(None if last is None else last[0], entry.client_seq) is Admission.APPLY:
            self.total += 1
            self.sessions[entry.client_id] = (entry.client_seq, self.total)

    def copy(self) -> Machine:
        return Machine(self.membership, self.total, dict(self.sessions))

    def fingerprint(self) -> tuple:
        return self.total, tuple(sorted(self.sessions.items())), tuple(sorted(self.membership.members.items()))
