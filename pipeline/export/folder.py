"""The folder of an incremental export: ``manifest.json``, ``messages/topic=…/date=…/…`` and, while one runs, ``staging``."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from myqueue.errors import ConflictError, LogFaultError

from ..files import sync, write_text
from ..source.cuts import Cut
from .manifest import Manifest, manifest_from_json, next_manifest

MANIFEST_NAME, DATASET_NAME, STAGING_NAME = "manifest.json", "messages", "staging"
FILES = "topic=*/date=*/*.parquet"


def read_manifest(folder: Path) -> Manifest:
    """The last one, or an empty one. Raises ConflictError where there is a data set without a manifest, and LogFaultError for lost files."""
    path = folder / MANIFEST_NAME
    if not path.exists():
        if (folder / DATASET_NAME).exists():
            raise ConflictError(f"{folder / DATASET_NAME} is there and no {MANIFEST_NAME}: it is another export's")
        return Manifest(0, Cut(""))
    manifest = manifest_from_json(path.read_text(encoding="utf-8"))
    lost = [name for name in manifest.files if not (folder / name).is_file()]
    if lost:
        raise LogFaultError(f"{len(lost)} files of the export are gone: {', '.join(lost[:3])}")
    return manifest


def clear_left_overs(folder: Path, manifest: Manifest) -> int:
    """Take away what an export that was cut off has left: its staging, and files that the manifest does not name. Gives their number."""
    shutil.rmtree(folder / STAGING_NAME, ignore_errors=True)
    named = {folder / name for name in manifest.files}
    orphans = [path for path in (folder / DATASET_NAME).glob(FILES) if path not in named]
    for path in orphans:
        path.unlink()
    return len(orphans)


def publish(folder: Path, before: Manifest, cut: Cut) -> Manifest:
    """Move what was staged into the data set and write the manifest that makes it count, whole or not at all."""
    if before.number == 0:
        write_manifest(folder, before)  # an empty one: what is moved in from here on is this export's, also where it is cut off
    files = []
    for staged in sorted((folder / STAGING_NAME).glob(FILES)):
        place = Path(DATASET_NAME) / staged.parent.relative_to(folder / STAGING_NAME) / f"{before.number + 1:06d}-{staged.name}"
        (folder / place.parent).mkdir(parents=True, exist_ok=True)
        sync(staged)
        os.replace(staged, folder / place)
        files.append(str(place))
    for parent in sorted({parent for name in files for parent in Path(name).parents}, reverse=True):
        sync(folder / parent)  # the names, before a manifest says that they are there
    manifest = next_manifest(before, cut, files)
    write_manifest(folder, manifest)
    shutil.rmtree(folder / STAGING_NAME, ignore_errors=True)
    return manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """On disk when this returns."""
    write_text(json.dumps(manifest.to_json(), indent=1, sort_keys=True) + "\n", folder / MANIFEST_NAME)
