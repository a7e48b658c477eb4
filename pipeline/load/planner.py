"""What is named on the command line → files → splits, and the load's own name."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from myqueue.errors import BadRequestError

from ..export.folder import DATASET_NAME, MANIFEST_NAME, read_manifest
from .fields import Fields
from .parquet_rows import row_groups
from .splits import CSV, LINES, NDJSON, PARQUET, Split

ENDINGS = {".ndjson": NDJSON, ".jsonl": NDJSON, ".csv": CSV, ".parquet": PARQUET}


def plan_splits(paths: Sequence[str], split_bytes: int, fields: Fields, format: str | None = None) -> list[Split]:
    """The splits of these files, in order.

    Args:
        paths: files; for Parquet folders too, whose files are taken in the order of their names.
        split_bytes: of a split of lines.
        format: of all files; without it, each file's ending says.

    Raises:
        BadRequestError: a file that cannot be read or is not Parquet where it should be; fields of lines that have none.
        LogFaultError: files that an export's manifest names are gone.
    """
    if format == LINES and fields.named:
        raise BadRequestError(f"lines have no fields, so no {fields.named[0]}: give --format ndjson")
    borders = []
    for path in (file for name in paths for file in _files(name, format)):
        kind = format or ENDINGS.get(os.path.splitext(path)[1].lower(), NDJSON if fields.named else LINES)
        if kind == PARQUET:
            borders += [(path, group, group + 1, kind) for group in row_groups(path)]
        else:
            size = os.path.getsize(path)
            step = max(1, size) if kind == CSV else split_bytes
            borders += [(path, start, min(start + step, size), kind) for start in range(0, size, step)]
    return [Split(number, *border) for number, border in enumerate(borders)]


def _files(name: str, format: str | None) -> list[str]:
    if os.path.isdir(name) and format in (None, PARQUET):
        return [str(path) for path in parquet_files(Path(name).resolve())]
    if not os.path.isfile(name) or not os.access(name, os.R_OK):
        raise BadRequestError(f"{name} is not a file that can be read")
    return [os.path.abspath(name)]


def parquet_files(folder: Path) -> list[Path]:
    """The Parquet files below a folder, sorted; of an export that has a manifest those that it names. Hidden ones, and what a writer left, are none.

    Raises:
        BadRequestError: there is none.
        LogFaultError: files that a manifest names are gone.
    """
    datasets = (place for place in (folder / DATASET_NAME, folder, *folder.parents) if place.name == DATASET_NAME)
    export = next((dataset.parent for dataset in datasets if (dataset.parent / MANIFEST_NAME).is_file()), None)
    if export is not None:
        found = [path for path in (export / file for file in read_manifest(export).files) if path.is_relative_to(folder)]
    else:
        found = [path for path in folder.rglob("*.parquet")
                 if path.is_file() and not any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts)]
    if not found:
        raise BadRequestError(f"{folder} holds no Parquet file")
    return sorted(found)


def load_id(cluster_id: str, topic_id: int, splits: Sequence[Split], fields: Fields) -> str:
    """Names a load: the same for the same files, as they are now, into the same topic. A file that changed, or a topic made anew, is another load."""
    stats = {path: os.stat(path) for path in {split.path for split in splits}}
    as_they_are = [(split.path, split.format, split.start, split.end, stats[split.path].st_size, stats[split.path].st_mtime_ns) for split in splits]
    what = [cluster_id, topic_id, fields.key, fields.value, as_they_are]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32]
