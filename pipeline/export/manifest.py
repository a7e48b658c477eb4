"""PURE: what has been exported: the files, and up to where. The manifest is the data set; a file that it does not name is none of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from myqueue.errors import BadRequestError, ConflictError, LogFaultError
from myqueue.protocol.types import OffsetRange

from ..source.cuts import Cut, CutPartition, cut_from_json, cut_of

SCHEMA_VERSION = 2  # 1: a folder per topic, and no column appendTime


@dataclass(frozen=True, slots=True)
class Manifest:
    """Generation ``number`` of a data set: every message of ``cut`` is in ``files`` (relative paths), once."""

    number: int
    cut: Cut
    files: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, "generation": self.number, "cut": json.loads(self.cut.to_json()), "files": list(self.files)}


def manifest_from_json(text: str) -> Manifest:
    """Raises BadRequestError where the text is not a manifest of this version."""
    try:
        body = json.loads(text)
        if body["schema_version"] != SCHEMA_VERSION:
            raise BadRequestError(f"a manifest of version {body['schema_version']}, this code reads version {SCHEMA_VERSION}: "
                                  "files of the two do not make one data set; export into another folder")
        return Manifest(int(body["generation"]), cut_from_json(json.dumps(body["cut"])), tuple(map(str, body["files"])))
    except (KeyError, TypeError, ValueError) as error:
        raise BadRequestError(f"the manifest cannot be read: {error!r}") from None


def rest_of(cut: Cut, exported: Cut) -> Cut:
    """What a cut holds that has not been exported.

    Raises:
        ConflictError: another cluster, or a topic made anew: its messages are not those that the data set has.
        LogFaultError: the log ends before what was exported, or retention took messages that were not.
    """
    if exported.partitions and exported.cluster_id != cut.cluster_id:
        raise ConflictError(f"the data set is of cluster {exported.cluster_id}, this is {cut.cluster_id}")
    return cut_of(cut.cluster_id, (_rest(one, exported.partitions.get(name)) for name, one in cut.partitions.items()))


def _rest(now: CutPartition, before: CutPartition | None) -> CutPartition:
    if before is None:
        return now
    if before.id != now.id:
        raise ConflictError(f"topic {now.name.topic} was made anew since it was exported: it had id {before.id.topic_id}, now {now.id.topic_id}; "
                            "export it into another folder")
    if now.offsets.end < before.offsets.end:
        raise LogFaultError(f"{now.name} was exported to offset {before.offsets.end}, the log ends at {now.offsets.end}: "
                            "it is an older copy; run an audit")
    if now.offsets.start > before.offsets.end:
        raise LogFaultError(f"{now.name} was exported to offset {before.offsets.end}, the log begins at {now.offsets.start}: "
                            "retention took what lies between")
    return CutPartition(now.name, now.id, OffsetRange(before.offsets.end, now.offsets.end))


def next_manifest(before: Manifest, cut: Cut, files: Iterable[str]) -> Manifest:
    """With these files the data set reaches to ``cut``; what it had stays, also of topics that are gone or not exported this time."""
    merged = dict(before.cut.partitions)
    for name, one in cut.partitions.items():
        start = merged[name].offsets.start if name in merged else one.offsets.start
        merged[name] = CutPartition(name, one.id, OffsetRange(start, one.offsets.end))
    return Manifest(before.number + 1, Cut(cut.cluster_id, merged), (*before.files, *sorted(files)))
