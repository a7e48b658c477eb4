"""A load: which splits are still to do, wave by wave, each noted once its rows are on the brokers' disks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from myqueue.errors import BadRequestError, TooLargeError, UnknownPartitionError
from myqueue.protocol.batch import check_record

from ..cluster import connected
from ..files import write_text
from ..sink import chunks
from ..sink.options import WriteOptions
from ..sink.sender import Writer, write_rows
from .csv_rows import read_csv
from .fields import ROW, Fields
from .lines import read_lines
from .parquet_rows import read_parquet
from .splits import CSV, LINES, NDJSON, PARQUET, Reading, Split

ROWS_A_TIME = 1000
READERS: dict[str, Callable[[Split, Fields], Reading[Any]]] = {LINES: read_lines, NDJSON: read_lines, CSV: read_csv, PARQUET: read_parquet}
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
    fields: Fields = ROW


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
    """Load what is not loaded yet; when this returns, every row is on disk once.

    Run again after any crash it goes on, and after it is done it adds nothing: a split's rows are sent by a writer of that split's name, whose
    requests the leaders know. ``tell`` hears of each wave. Raises what the execution raises; what was loaded until then stays.
    """
    progress = Progress.read(folder / "load.json", plan.id)
    tell(progress)
    for some in _batched((split for split in plan.splits if split.number not in progress.done), wave):
        progress.note(execute(plan, some))
        tell(progress)
    return progress


def load_split(plan: LoadPlan, split: Split) -> Loaded:
    """One split's rows. Raises as :func:`write_rows`, of a row that cannot be loaded with its place."""
    with connected(plan.options.bootstrap) as connection:
        try:
            written = write_rows(rows_of(plan, split), Writer(f"load {plan.id}", 0, split.number), plan.options, connection)
        except UnknownPartitionError as error:  # the file's own column says so
            raise BadRequestError(f"{split.path}: {error.message}") from error
    return Loaded(split.number, written.messages, written.repeated)


def rows_of(plan: LoadPlan, split: Split) -> Iterator[list[chunks.Row]]:
    """One split's messages, in groups. Raises BadRequestError, TooLargeError with the place of what cannot be loaded."""
    read, message_of = READERS[split.format](split, plan.fields)
    topic = plan.options.topic or ""
    for some in _batched(read, ROWS_A_TIME):
        rows = []
        for at, found in some:
            try:
                record, partition = message_of(found)
                check_record(record)
            except (BadRequestError, TooLargeError) as error:
                raise type(error)(f"{split.place(at)}: {error.message}") from None
            rows.append(chunks.Row(topic, partition, record))
        yield rows


def _batched(items: Iterable[T], count: int) -> Iterator[list[T]]:
    """Lists of ``count`` items, the last one perhaps shorter."""
    iterator = iter(items)
    while some := list(islice(iterator, count)):
        yield some
