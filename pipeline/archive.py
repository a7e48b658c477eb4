"""The code that Spark's executors need, as a zip for ``--py-files``: the packages ``myqueue`` and ``pipeline``. See ``scripts/spark-submit zip``."""

from __future__ import annotations

import hashlib
import io
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("myqueue", "pipeline")
MADE_AT = (1980, 1, 1, 0, 0, 0)  # of every file: the same code gives the same bytes


def archive_of(root: Path) -> bytes:
    """The zip of the packages below ``root``."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*.py")):
            archive.writestr(zipfile.ZipInfo(str(path.relative_to(root)), MADE_AT), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return out.getvalue()


def main(argv: Sequence[str]) -> int:
    """Write the zip to a file, or into a folder under a name that follows from its content, and print where it is. Gives the exit code."""
    if len(argv) != 1 or argv[0].startswith("-"):
        print("usage: spark-submit zip FILE|FOLDER", file=sys.stderr)
        return 3
    content, path = archive_of(ROOT), Path(argv[0])
    if path.is_dir():
        path /= f"myqueue-{hashlib.sha256(content).hexdigest()[:12]}.zip"
    partial = path.with_name(f"{path.name}.{hashlib.sha256(content).hexdigest()[:12]}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)  # whole or not at all, also for a job that reads it now
    except OSError as error:
        print(f"spark-submit zip: {path}: {error.strerror}", file=sys.stderr)
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
