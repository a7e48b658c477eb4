"""PURE. The metadata as a register: is there an order of all operations, each between its call and its answer, that explains every answer?

Names are independent of each other, so each is checked by itself: ``create`` sets it once, ``exists`` reads it. The search is that of
Wing and Gong (1993) with Lowe's memory of states seen. Ids from ``register`` need no search: they are unique, and one given after
another was answered is greater.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from tests.campaign.history import FAILED, OK, UNKNOWN, Command, History

CREATE, EXISTS, REGISTER = "create", "exists", "register"
CREATED, THERE_ALREADY = "created", "there already"  # results of a create that was answered


def not_linearizable(history: History) -> Iterator[str]:
    """An answer about names or ids that no order of the operations explains."""
    by_key: dict[str, list[Command]] = defaultdict(list)
    for command in history.commands:
        if command.kind in (CREATE, EXISTS):
            by_key[command.key].append(command)
    for key, commands in sorted(by_key.items()):
        if history.topics is not None and commands:
            end = max(command.ended for command in commands)
            commands = [*commands, Command("the end", EXISTS, key, OK, key in history.topics, end, end)]
        if not is_linearizable(commands):
            yield f"name {key}: no order explains {_told(commands)}"
    yield from _ids(history)


def is_linearizable(commands: Sequence[Command]) -> bool:
    """Whether some order of the operations on one name explains all answers. What failed was not done; what is unknown may be done at any
    later time, or never."""
    asked = [command for command in commands if command.outcome != FAILED and not (command.kind == EXISTS and command.outcome == UNKNOWN)]
    ends = [math.inf if command.outcome == UNKNOWN else command.ended for command in asked]
    needed = sum(1 << place for place, command in enumerate(asked) if command.outcome == OK)
    waiting = [(0, False)]
    seen = set(waiting)
    while waiting:
        done, is_there = waiting.pop()
        if done & needed == needed:
            return True
        open_places = [place for place in range(len(asked)) if not done >> place & 1]
        first_end = min(ends[place] for place in open_places)
        for place in open_places:
            if asked[place].began > first_end:
                continue  # something that ended before this began is not in the order yet
            after = _step(is_there, asked[place])
            if after is not None and (done | 1 << place, after) not in seen:
                seen.add((done | 1 << place, after))
                waiting.append((done | 1 << place, after))
    return False


def _step(is_there: bool, command: Command) -> bool | None:
    """The state after an operation; None where its answer does not fit the state before."""
    if command.kind == EXISTS:
        return is_there if command.result == is_there else None
    if command.outcome == UNKNOWN:
        return True
    if command.result == CREATED:
        return None if is_there else True
    return True if is_there else None


def _told(commands: Sequence[Command]) -> str:
    ordered = sorted(commands, key=lambda command: command.began)
    return "; ".join(f"{c.client} {c.kind} {c.result if c.outcome == OK else c.outcome} [{c.began:.3f}, {c.ended:.3f}]" for c in ordered[:12])


def _ids(history: History) -> Iterator[str]:
    given = sorted((command for command in history.commands if command.kind == REGISTER and command.outcome == OK), key=lambda command: command.began)
    seen: dict[int, Command] = {}
    for command in given:
        if command.result in seen:
            yield f"id {command.result} was given to {seen[command.result].client} and to {command.client}"
        seen[command.result] = command
    answered = sorted(given, key=lambda command: command.ended)
    highest, place = 0, 0
    for command in given:
        while place < len(answered) and answered[place].ended < command.began:
            highest = max(highest, answered[place].result)
            place += 1
        if command.result < highest:
            yield f"{command.client} was given id {command.result} after {highest} had been given"
