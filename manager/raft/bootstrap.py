"""The beginning of a group: who its first members are is itself the beginning of the log.

One manager, named by the operator and only while no other one knows of a group, writes the first entries. Everybody else learns the
membership from the log or a snapshot; a manager with an empty log knows nobody, so it asks for no votes.
"""

from __future__ import annotations

from collections.abc import Iterable

from manager.raft.log import Proposal, entries_behind
from manager.raft.membership import SET_MEMBER, Member
from manager.raft.state import Changes, Held, TermVote
from myqueue.errors import RefusedError

FIRST_TERM = 1


def plan_bootstrap(held: Held, members: Iterable[Member]) -> Changes:
    """The first entries of a log: its members, this manager with its disk among the voters.

    They count as committed where they are written: nobody else can win an election without them.

    Raises:
        RefusedError: there is a log or a term already, or this manager would be no voter. Nothing is stored.
    """
    members, state = tuple(members), held.state
    if held.log.end or state.current_term:
        raise RefusedError("this manager has a log or a term already")
    if not any(member.voter and (member.node_id, member.disk_id) == (state.node_id, state.disk_id) for member in members):
        raise RefusedError("the first members must include this manager, with its disk, as a voter")
    commands = (Proposal({"type": SET_MEMBER, "node_id": member.node_id, "url": member.url, "disk_id": member.disk_id, "voter": member.voter})
                for member in members)
    entries = entries_behind(held.log, FIRST_TERM, commands)
    return Changes(term_vote=TermVote(FIRST_TERM, None), insert=entries, commit_index=len(entries))
