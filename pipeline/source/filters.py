"""PURE: which offsets a query's own conditions leave to be read. They only prune: Spark applies every condition again."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from myqueue.protocol.types import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

# By the names of pyspark's classes: whoever plans without Spark need not import it.
EQUAL = "EqualTo"
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    EQUAL: operator.eq, "GreaterThan": operator.gt, "GreaterThanOrEqual": operator.ge, "LessThan": operator.lt, "LessThanOrEqual": operator.le,
    "In": lambda value, wanted: value in wanted}
_NAMES = ("topic", "partition")
INT64_MAX = (1 << 63) - 1
ALL_OFFSETS = OffsetRange(0, INT64_MAX)


@dataclass(frozen=True, slots=True)
class Pruning:
    """What conditions on topic, partition and offset allow."""

    conditions: tuple[tuple[str, str, Any], ...] = ()  # on topic or partition
    offsets: OffsetRange = ALL_OFFSETS

    def wants(self, partition: TopicPartition) -> bool:
        """Whether any message of this partition can satisfy the conditions."""
        return all(_COMPARE[kind](getattr(partition, column), value) for column, kind, value in self.conditions)

    def clip(self, offsets: OffsetRange) -> OffsetRange:
        """The offsets that can satisfy the conditions."""
        start = max(offsets.start, self.offsets.start)
        return OffsetRange(start, max(start, min(offsets.end, self.offsets.end)))


NO_PRUNING = Pruning()


def pruning_of(filters: Iterable[Filter]) -> Pruning:
    """The conditions that can be judged before anything is read; the others are left to Spark."""
    conditions, offsets = [], ALL_OFFSETS
    for condition in filters:
        kind, column = type(condition).__name__, ".".join(getattr(condition, "attribute", ()))
        if kind not in _COMPARE or condition.value is None:  # type: ignore[attr-defined]
            continue
        if column in _NAMES:
            conditions.append((column, kind, condition.value))  # type: ignore[attr-defined]
        elif column == "offset":
            offsets = _narrowed(offsets, kind, condition.value)  # type: ignore[attr-defined]
    return Pruning(tuple(conditions), offsets)


def _narrowed(offsets: OffsetRange, kind: str, wanted: Any) -> OffsetRange:
    start, end = offsets.start, offsets.end
    if kind == "In":
        wanted = [value for value in wanted if value is not None]  # NULL equals nothing
        return OffsetRange(max(start, min(wanted)), min(end, max(wanted) + 1)) if wanted else offsets
    if kind in (EQUAL, "GreaterThan", "GreaterThanOrEqual"):
        start = max(start, wanted + (kind == "GreaterThan"))
    if kind in (EQUAL, "LessThan", "LessThanOrEqual"):
        end = min(end, wanted + (kind != "LessThan"))
    return OffsetRange(start, end)
