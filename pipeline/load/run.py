"""A load: which splits are still to do, wave by wave, each noted once its lines are on the brokers' disks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import TypeVar

from myqueue.protocol.types import Record

from ..cluster import connected
from ..files import write_text
from ..sink.chunks import Row
from ..sink.options import WriteOptions
from ..sink.sender import Writer, write_rows
from .splits import Split, key_of, lines_of

ROWS_A_TIME = 1000
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Loaded:
    """What became of a split. ``repeated`` of its messages were there already."""

    number: int
    messages: int
    repeated: int


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What is loaded, by whom, into which topic. ``id`` also names the writers."""

    id: str
    splits: tuple[Split, ...]
    options: WriteOptions
    key_field: str | None = None


Execute = Callable[[LoadPlan, Sequence[Split]], Iterable[Loaded]]


@dataclass(slots=True)
class Progress:
    """The splits that are done, in a file. Without it, or where it cannot be read, nothing is lost: the brokers know what they have."""

    path: Path
    plan_id: str
    done: dict[int, Loaded] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, plan_id: str) -> Progress:
        """What an earlier run of the same load has noted; of another load nothing counts."""
        try:
            body = json.loads(path.read_text(encoding="utf-8"))
            splits = [Loaded(**one) for one in body["splits"]] if body["load_id"] == plan_id else []
        except (OSError, ValueError, KeyError, TypeError):
            splits = []
        return cls(path, plan_id, {one.number: one for one in splits})

    def note(self, loaded: Iterable[Loaded]) -> None:
        self.done |= {one.number: one for one in loaded}
        splits = [asdict(one) for _, one in sorted(self.done.items())]
        write_text(json.dumps({"schema_version": 1, "load_id": self.plan_id, "splits": splits}) + "\n", self.path)

    @property
    def messages(self) -> int:
        return sum(one.messages for one in self.done.values())


def load(plan: LoadPlan, folder: Path, execute: Execute, *, wave: int, tell: Callable[[Progress], object]) -> Progress:
    """Load what is not loaded yet; when this returns, every line is on disk once.

    Run again after any crash it goes on, and after it is done it adds nothing: a split's lines are sent by a writer of that split's name, whose
    requests the leaders know. ``tell`` hears of each wave. Raises what the execution raises; what was loaded until then stays.
    """
    progress = Progress.read(folder / "load.json", plan.id)
    tell(progress)
    for some in _batched((split for split in plan.splits if split.number not in progress.done), wave):
        progress.note(execute(plan, some))
        tell(progress)
    return progress


def load_split(plan: LoadPlan, split: Split) -> Loaded:
    """One split's lines. Raises as :func:`write_rows`."""
    with connected(plan.options.bootstrap) as connection:
        written = write_rows(_rows(plan, split), Writer(f"load {plan.id}", 0, split.number), plan.options, connection)
    return Loaded(split.number, written.messages, written.repeated)


def _rows(plan: LoadPlan, split: Split) -> Iterator[Iterable[Row]]:
    topic = plan.options.topic or ""
    for lines in _batched(lines_of(split), ROWS_A_TIME):
        yield [Row(topic, None, Record(line, key_of(line, plan.key_field) if plan.key_field else None)) for line in lines]


def _batched(items: Iterable[T], count: int) -> Iterator[list[T]]:
    """Lists of ``count`` items, the last one perhaps shorter."""
    iterator = iter(items)
    while some := list(islice(iterator, count)):
        yield some
