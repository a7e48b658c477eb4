"""Checks of one broker's logs: the heads (one look-up for all partitions) and the stretches (one task each)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from myqueue.errors import MyQueueError, NotFoundError

from ..cluster import DatabaseAddress
from ..databases import Database, Limits, rows_of
from . import statements
from .findings import Finding
from .stretches import Stretch

DAMAGE_SHOWN_MAX = 20  # damaged entries named per stretch; all are counted


@dataclass(frozen=True, slots=True, order=True)
class Damage:
    """Something wrong at a place of a log."""

    check: str
    lsn: int
    start_offset: int = -1
    end_offset: int = -1
    detail: str = ""


@dataclass(frozen=True, slots=True)
class StretchFacts:
    """What one stretch holds (the columns of schemas.STRETCH_FACTS)."""

    broker_id: int
    topic: str
    partition: int
    from_lsn: int
    to_lsn: int
    entries: int = 0
    records: int = 0
    committed_records: int = 0
    damage: tuple[Damage, ...] = ()
    damage_count: int = 0
    error: str | None = None
    is_dropped: bool = False  # its segment is gone: the log begins behind it by now


# --- heads ---


def judge_head(head: dict[str, Any]) -> list[Damage]:
    """What is wrong with a head row and a commit position, given the entries they speak of (a row of statements.HEADS)."""
    fault = [Damage("fault", -1, detail=head["fault"])] if head["fault"] else []
    return [*_judge_commit(head), *_judge_end(head), *fault]


def _judge_commit(head: dict[str, Any]) -> Iterator[Damage]:
    lsn, offset, end_lsn, end_offset = head["commit_lsn"], head["commit_offset"], head["end_lsn"], head["end_offset"]
    if lsn is None:
        if end_lsn > head["start_lsn"]:
            yield Damage("commit_position", -1, detail="there are entries and no committed end on record")
        return
    if lsn > end_lsn:
        yield Damage("commit_position", lsn, offset, offset, f"the committed end is lsn {lsn}, the log ends at {end_lsn}")
        return
    expected = end_offset if lsn == end_lsn else head["base_at_commit"]
    if expected is not None and expected != offset:
        yield Damage("commit_position", lsn, offset, offset, f"the committed end says offset {offset}, the entries say {expected}")


def _judge_end(head: dict[str, Any]) -> Iterator[Damage]:
    if head["last_lsn"] is None:
        if head["end_lsn"] != head["start_lsn"]:
            yield Damage("gap", head["start_lsn"], head["start_offset"], head["end_offset"], "no entry that the head row speaks of is there")
        return
    said = {"end_lsn": head["last_lsn"] + 1, "end_offset": head["last_end"], "end_epoch": head["last_epoch"]}
    wrong = [f"{name} is {head[name]} and the last entry says {expected}" for name, expected in said.items() if head[name] != expected]
    # A last entry whose own chain was changed is found there; the head, which agrees with its content, is right.
    if not wrong and head["end_chain"] not in (head["last_chain"], head["last_computed"]):
        wrong = ["end_chain is not the last entry's chain"]
    if wrong:
        yield Damage("head_row", head["last_lsn"], head["last_end"], head["last_end"], ", ".join(wrong))


# --- stretches ---


def check_task(stretches: Sequence[Stretch], limits: Limits) -> Iterator[StretchFacts]:
    """Check a task's stretches one after the other. A database that cannot be reached is a fact too (``error``): the others are still checked."""
    databases: dict[DatabaseAddress, Database] = {}
    try:
        for stretch in stretches:
            database = databases.setdefault(stretch.database, Database(stretch.database, limits))
            try:
                yield check_stretch(stretch, database)
            except MyQueueError as error:
                yield StretchFacts(*_place(stretch), error=error.message, is_dropped=isinstance(error, NotFoundError))
    finally:
        for database in databases.values():
            database.close()


def check_stretch(stretch: Stretch, database: Database) -> StretchFacts:
    """Check one stretch, in short transactions: no segment is held longer than a statement needs.

    Raises UnreachableError, and NotFoundError where its segment was dropped."""
    parameters = {"topic_id": stretch.topic_id, "partition": stretch.partition, "from_lsn": stretch.from_lsn, "to_lsn": stretch.to_lsn,
                  "commit_lsn": stretch.commit_lsn, "limit": DAMAGE_SHOWN_MAX, **_before(stretch, database)}
    with database.snapshot() as cursor:
        summary = rows_of(cursor, statements.summary(stretch.segment_id), parameters)[0]
        damaged = rows_of(cursor, statements.damage(stretch.segment_id), parameters) if summary["damaged"] else []
    tail = _missing_tail(stretch, database, parameters, summary)
    found = [damage for row in damaged for damage in judge_entry(row)] + tail
    return StretchFacts(*_place(stretch), summary["entries"], summary["records"], summary["committed_records"], tuple(found),
                        max(summary["damaged"] + len(tail), len(found)))


def _place(stretch: Stretch) -> tuple[int, str, int, int, int]:
    return stretch.broker_id, stretch.topic, stretch.partition, stretch.from_lsn, stretch.to_lsn


def _missing_tail(stretch: Stretch, database: Database, parameters: dict[str, Any], summary: dict[str, Any]) -> list[Damage]:
    """What is missing at the stretch's end, where no entry follows that would tell."""
    last_lsn = parameters["before_lsn"] if summary["last_lsn"] is None else summary["last_lsn"]
    if last_lsn >= stretch.to_lsn - 1:
        return []
    last_end = parameters["before_end"] if summary["last_end"] is None else summary["last_end"]
    with database.snapshot() as cursor:
        after = rows_of(cursor, statements.AFTER, parameters)
    return [_gap(last_lsn + 1, stretch.to_lsn, last_end, after[0]["base_offset"] if after else stretch.end_offset)]


def _before(stretch: Stretch, database: Database) -> dict[str, Any]:
    """The entry before the stretch, as the statements want it: what its first entry must continue."""
    start_chain = bytes.fromhex(stretch.start_chain)
    if stretch.from_lsn == stretch.start_lsn:
        return {"before_lsn": stretch.start_lsn - 1, "before_end": stretch.start_offset, "before_epoch": stretch.start_epoch,
                "before_time": 0, "before_chain": start_chain, "before_computed": start_chain}
    parameters = {"topic_id": stretch.topic_id, "partition": stretch.partition, "from_lsn": stretch.from_lsn,
                  "start_lsn": stretch.start_lsn, "start_chain": start_chain}
    with database.snapshot() as cursor:
        rows = rows_of(cursor, statements.BEFORE, parameters)
    row = rows[0] if rows else dict.fromkeys(("end_offset", "epoch", "append_time", "chain", "computed"))  # missing: the stretch before says so
    return {"before_lsn": stretch.from_lsn - 1, "before_end": row["end_offset"], "before_epoch": row["epoch"],
            "before_time": row["append_time"], "before_chain": row["chain"], "before_computed": row["computed"]}


def judge_entry(row: dict[str, Any]) -> list[Damage]:
    """What is wrong with one entry (a row of statements.damage)."""
    lsn, start, end = row["lsn"], row["base_offset"], row["base_offset"] + row["record_count"]
    found = []
    if row["is_gap"]:
        found.append(_gap(row["before_lsn"] + 1, lsn, row["before_end"], start))
    if row["is_offset_gap"]:
        found.append(Damage("offset_gap", lsn, start, end, f"the entry begins at offset {start}, the one before it ends at {row['before_end']}"))
    if row["is_disordered"]:
        found.append(Damage("order", lsn, start, end, "the epoch or the append time is lower than the entry's before it"))
    if row["is_broken"] and not row["follows"]:
        check = "chain_value" if row["next_follows"] else "chain_content"
        detail = "its stored chain was changed" if row["next_follows"] else "the chain recomputed from its content is another one"
        found.append(Damage(check, lsn, start, end, detail))
    return found


def _gap(from_lsn: int, to_lsn: int, start_offset: int | None, end_offset: int | None) -> Damage:
    start, end = (-1 if value is None else value for value in (start_offset, end_offset))
    which = f"entry {from_lsn} is" if to_lsn - from_lsn == 1 else f"entries {from_lsn} to {to_lsn - 1} are"
    return Damage("gap", from_lsn, start, end, f"{which} missing, {max(0, end - start) if start >= 0 else 'some'} records with it")


# --- from facts to findings ---


def findings_of(facts: Iterable[StretchFacts]) -> list[Finding]:
    """The damage in all stretches, as findings."""
    found = []
    for fact in facts:
        found += [finding_of(fact.broker_id, fact.topic, fact.partition, damage) for damage in fact.damage]
        hidden = fact.damage_count - len(fact.damage)
        if hidden > 0:
            found.append(Finding("gap" if not fact.damage else fact.damage[-1].check, f"broker-{fact.broker_id}", fact.topic, fact.partition,
                                 fact.from_lsn, detail=f"and {hidden} more between lsn {fact.from_lsn} and {fact.to_lsn - 1}"))
    return found


def finding_of(broker_id: int, topic: str, partition: int, damage: Damage) -> Finding:
    return Finding(damage.check, f"broker-{broker_id}", topic, partition, damage.lsn, damage.start_offset, damage.end_offset, damage.detail)
