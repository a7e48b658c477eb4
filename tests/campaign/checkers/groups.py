"""PURE. What the members of consumer groups saw between them: every message, and none again that was committed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.campaign.history import History, place

NOTICE_SECONDS = 1.0  # from the acknowledgement of a commit to the moment at which it is noted, in a process that is busy


def missed(history: History) -> Iterator[str]:
    """A message stands in a log that a group has read to the end, and none of its members was given it."""
    seen: dict[tuple[str, str], set[int]] = defaultdict(set)
    for shared in history.shared:
        seen[shared.group, place(shared.topic, shared.partition)].add(shared.offset)
    for group, where in sorted(seen):
        left = sorted(history.log(where).keys() - seen[group, where])
        if left:
            yield f"no member of {group} was given {where}@{left[0]}, and {len(left) - 1} more"


def done_again(history: History) -> Iterator[str]:
    """A member was given what its group had committed before: two owned a partition at a time, or a commit was lost."""
    commits: dict[tuple[str, str, int], list[tuple[float, int]]] = defaultdict(list)
    for committed in history.committed:
        commits[committed.reader, committed.topic, committed.partition].append((committed.ended, committed.offset))
    reads: dict[tuple[str, str, int], list[tuple[float, int, str]]] = defaultdict(list)
    for shared in history.shared:
        reads[shared.group, shared.topic, shared.partition].append((shared.at, shared.offset, shared.member))
    for key, given in reads.items():
        acknowledged = sorted(commits[key], reverse=True)
        done = 0
        for at, offset, member in sorted(given):
            while acknowledged and acknowledged[-1][0] + NOTICE_SECONDS <= at:
                done = max(done, acknowledged.pop()[1])
            if offset < done:
                yield f"{member} was given {place(key[1], key[2])}@{offset} when {key[0]} had committed {done}"
