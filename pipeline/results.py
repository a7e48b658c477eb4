"""The folder of a job's result: a page, a summary and Parquet data sets, and a staging folder while they are written."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from myqueue.errors import BadRequestError

from .files import sync, write_text


@dataclass(frozen=True, slots=True)
class ResultFolder:
    """What a job leaves in a folder, by name. The summary is written last: where it is, everything is."""

    kind: str  # what it is called in sentences
    datasets: tuple[str, ...]
    page: str
    summary: str
    staging: str

    def check_free(self, folder: Path) -> None:
        """Raises BadRequestError where a result, or a part of one, is there: none is ever replaced."""
        there = [name for name in (self.summary, self.page, *self.datasets) if (folder / name).exists()]
        if there:
            raise BadRequestError(f"{folder / there[0]} is there already: give --out a folder without a {self.kind}")

    def staging_in(self, folder: Path) -> Path:
        """Where the data sets are written first; what a run that was cut off has left there is gone."""
        shutil.rmtree(folder / self.staging, ignore_errors=True)
        return folder / self.staging

    def publish(self, folder: Path, page: str, summary: str) -> None:
        """Move the staged data sets in and write page and summary, the summary last: where it is, everything is, also after a power cut."""
        for name in self.datasets:
            for file in (folder / self.staging / name).glob("*.parquet"):
                sync(file)
            sync(folder / self.staging / name)
            os.rename(folder / self.staging / name, folder / name)
        write_text(page, folder / self.page)
        write_text(summary, folder / self.summary)
        shutil.rmtree(folder / self.staging, ignore_errors=True)
