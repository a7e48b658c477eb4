"""The beginning of a group: who its first members are is itself the first entry of the log.

One manager, named by the operator, writes it, and only while no other one knows of a group. Everybody else learns the membership
from the log or from a snapshot. A manager with an empty log knows nobody and asks for no votes, so until the entry is on others too
only its writer can be elected; it is committed like any other, behind that leader's marker.
"""

from __future__ import annotations

from db.replication import counts
from manager.raft.log import Command, Proposal, entries_behind
from manager.raft.membership import INIT_CLUSTER, Membership, after_command
from manager.raft.state import Changes, Held, TermVote
from myqueue.errors import RefusedError

FIRST_TERM = 1  # of the first entry; elections begin with the one after


def plan_bootstrap(held: Held, command: Command) -> Changes:
    """The first entry of a log: an ``init_cluster`` command with this manager, on its disk, among the members.

    Raises:
        RefusedError: there is a log or a term already, or the command is not such a one. Nothing is stored.
    """
    state = held.state
    if held.log.end or state.current_term:
        raise RefusedError("this manager has a log or a term already")
    founders = after_command(Membership(), command, 1).voters if command.get("type") == INIT_CLUSTER else {}
    if not counts(founders, state.node_id, state.disk_id):
        raise RefusedError("the first members must include this manager with its disk")
    return Changes(term_vote=TermVote(FIRST_TERM, None), insert=entries_behind(held.log, FIRST_TERM, (Proposal(command),)))
