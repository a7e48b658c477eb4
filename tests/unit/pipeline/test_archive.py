"""The zip that Spark's executors get."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pipeline.archive import ROOT, archive_of, main


def test_the_zip_holds_the_code_and_the_same_code_gives_the_same_zip(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Into a file, or into a folder under a name of its content; both packages can be imported from it."""
    assert [0, 0, 0] == [main([str(path)]) for path in (tmp_path / "code.zip", tmp_path, tmp_path)]
    first, second, third = map(Path, capsys.readouterr().out.split())
    assert first.read_bytes() == second.read_bytes() == archive_of(ROOT)
    assert (second, {first, second}) == (third, set(tmp_path.iterdir()))
    done = subprocess.run([sys.executable, "-c", "import pipeline.source.ranges, myqueue.protocol.batch; print(pipeline.__file__)"], cwd=tmp_path,
                          capture_output=True, text=True, timeout=50, env={"PYTHONPATH": f"{first}:{':'.join(sys.path)}"})
    assert str(first) in done.stdout, done.stderr
    assert not [name for name in zipfile.ZipFile(first).namelist() if not name.endswith(".py")]


@pytest.mark.parametrize(("arguments", "code", "said"), [
    ([], 3, "usage: spark-submit zip FILE"), (["a", "b"], 3, "usage"), (["--help"], 3, "usage"),
    (["/nowhere/at/all.zip"], 1, "No such file or directory")])
def test_what_cannot_be_written_is_said(capsys: pytest.CaptureFixture, arguments: list[str], code: int, said: str) -> None:
    """With the exit code that fits."""
    assert code == main(arguments)
    assert said in capsys.readouterr().err
