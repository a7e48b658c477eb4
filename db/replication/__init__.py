"""The replication core: log matching, truncation, progress, commit rule. Pure; one core for the managers' WAL and the partitions."""

from db.replication.append import AppendPlan, AppendReply, AppendRequest, Hint, Refusal, ReplicaState, plan_append
from db.replication.log import Entry, LogView, MemoryLog, chain_before, end_epoch, epoch_before, holds_border
from db.replication.progress import Progress, SendPlan, after_reply, after_snapshot, holders, plan_send
from db.replication.quorum import Holder, Voters, commit_position, counts, has_majority, majority, majority_position
from db.replication.start import OfferedStart, accepts_start, takes_start

__all__ = [
    "AppendPlan", "AppendReply", "AppendRequest", "Entry", "Hint", "Holder", "LogView", "MemoryLog", "OfferedStart", "Progress",
    "Refusal", "ReplicaState", "SendPlan", "Voters", "accepts_start", "after_reply", "after_snapshot", "chain_before",
    "commit_position", "counts", "end_epoch", "epoch_before", "has_majority", "holders", "holds_border", "majority",
    "majority_position", "plan_append", "plan_send", "takes_start",
]
