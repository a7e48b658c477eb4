"""The folder of a report: ``report.html``, ``report.json`` and three Parquet data sets, and ``staging`` while they are written."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from myqueue.errors import BadRequestError

from ..files import sync, write_text

TRAFFIC_NAME, KEYS_NAME, LAG_NAME = "traffic", "top_keys", "lag"
DATASETS = (TRAFFIC_NAME, KEYS_NAME, LAG_NAME)
PAGE_NAME, SUMMARY_NAME, STAGING_NAME = "report.html", "report.json", "report-staging"


def check_free(folder: Path) -> None:
    """Raises BadRequestError where a report, or a part of one, is there: none is ever replaced."""
    there = [name for name in (SUMMARY_NAME, PAGE_NAME, *DATASETS) if (folder / name).exists()]
    if there:
        raise BadRequestError(f"{folder / there[0]} is there already: give --out a folder without a report")


def staging_in(folder: Path) -> Path:
    """Where the data sets are written first; what a report that was cut off has left there is gone."""
    shutil.rmtree(folder / STAGING_NAME, ignore_errors=True)
    return folder / STAGING_NAME


def publish(folder: Path, page: str, summary: str) -> None:
    """Move the staged data sets in and write page and summary, the summary last: where it is, everything is, also after a power cut."""
    for name in DATASETS:
        for file in (folder / STAGING_NAME / name).glob("*.parquet"):
            sync(file)
        sync(folder / STAGING_NAME / name)
        os.rename(folder / STAGING_NAME / name, folder / name)
    write_text(page, folder / PAGE_NAME)
    write_text(summary, folder / SUMMARY_NAME)
    shutil.rmtree(folder / STAGING_NAME, ignore_errors=True)
