"""Files of receipts → what producers were told, as ranges of offsets by partition and ten minutes."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from myqueue.errors import BadRequestError
from myqueue.protocol.receipts import BatchReceipt, receipts_in
from myqueue.protocol.types import TopicPartition

from ..report.figures import Window
from ..transforms.reconcile import PERIOD_US
from .coverage import Coverage, Stretch

Ranges = dict[TopicPartition, dict[int, Coverage]]  # by partition and the beginning of the ten minutes, in microseconds since 1970


@dataclass(slots=True)
class Acknowledged:
    """What receipts say of the topics in question, within the window.

    ``elsewhere`` counts the messages of a topic's earlier identity (or of a topic that is gone), by its name and number; ``placeless`` those whose
    place is not known; ``torn`` the lines that a producer which died has left unfinished.
    """

    ranges: Ranges = field(default_factory=dict)
    elsewhere: dict[tuple[str, int | None], int] = field(default_factory=dict)
    placeless: dict[TopicPartition, int] = field(default_factory=dict)
    batches: int = 0
    messages: int = 0
    torn: int = 0

    def end_of(self, name: TopicPartition) -> int:
        """Behind the last offset that was acknowledged in a partition, 0 where there is none."""
        return max((one.end for one in merged(self.ranges.get(name, {}))), default=0)


def merged(by_period: Mapping[int, Coverage]) -> list[Stretch]:
    """The stretches of all periods of a partition together."""
    return Coverage(one for coverage in by_period.values() for one in coverage.stretches()).stretches()


def find_files(patterns: Iterable[str]) -> list[str]:
    """The files that names and patterns name, each once, however often it is named.

    Raises:
        BadRequestError: one names no file.
    """
    found: dict[tuple[int, int], str] = {}
    for pattern in patterns:
        paths = [pattern] if os.path.isfile(pattern) else sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))
        if not paths:
            raise BadRequestError(f"--receipts {pattern}: there is no such file")
        for path in paths:
            about = os.stat(path)
            found.setdefault((about.st_dev, about.st_ino), path)
    return list(found.values())


def read_receipts(files: Iterable[str], topic_ids: Mapping[str, int], chosen: Sequence[str], window: Window) -> Acknowledged:
    """What the files' receipts say, of which no more is kept than ranges.

    Args:
        topic_ids: the identity of each topic of the cluster.
        chosen: the topics in question; without any, all, those that are gone included.

    Raises:
        BadRequestError: a file cannot be read, or a line is no receipt.
    """
    made = Acknowledged()
    for path in files:
        try:
            with open(path, "rb") as lines:
                for receipt in receipts_in(lines):
                    take(made, receipt, topic_ids, chosen, window)
        except OSError as error:
            raise BadRequestError(f"--receipts {path}: {error.strerror or error}") from None
        except BadRequestError as error:
            raise BadRequestError(f"--receipts {path}: {error.message}") from None
    return made


def take(made: Acknowledged, receipt: BatchReceipt | None, topic_ids: Mapping[str, int], chosen: Sequence[str], window: Window) -> None:
    """Add one receipt; None is a torn line."""
    if receipt is None:
        made.torn += 1
        return
    if (chosen and receipt.topic not in chosen) or not _is_in(window, receipt.append_time_us):
        return
    made.batches, made.messages = made.batches + 1, made.messages + receipt.record_count
    known = topic_ids.get(receipt.topic)
    if known is None or receipt.topic_id not in (None, known):
        elsewhere = (receipt.topic, receipt.topic_id)
        made.elsewhere[elsewhere] = made.elsewhere.get(elsewhere, 0) + receipt.record_count
    elif receipt.base_offset is None or receipt.append_time_us is None:
        made.placeless[receipt.name] = made.placeless.get(receipt.name, 0) + receipt.record_count
    else:
        period = receipt.append_time_us - receipt.append_time_us % PERIOD_US
        coverage = made.ranges.setdefault(receipt.name, {}).setdefault(period, Coverage())
        coverage.add(receipt.base_offset, receipt.base_offset + receipt.record_count)


def _is_in(window: Window, time_us: int | None) -> bool:
    """A time that is not known may lie in any window."""
    if time_us is None:
        return True
    return (window.since_us is None or window.since_us <= time_us) and (window.until_us is None or time_us < window.until_us)
