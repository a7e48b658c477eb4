"""The jobs' arguments and their one-sentence errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from myqueue.errors import BadRequestError, LogFaultError, UnreachableError
from pipeline.jobs.arguments import job_parser, parse, run, verdict_of


def test_flags_become_settings_and_the_folder_is_made(tmp_path: Path) -> None:
    """Topics are split at commas; --out exists afterwards."""
    settings, _ = parse(job_parser("audit", ""), ["--out", str(tmp_path / "a" / "b"), "--topics", "x,y", "--range-bytes", "2000000"])
    assert (("x", "y"), 2_000_000, True) == (settings.topics, settings.range_bytes, (tmp_path / "a" / "b").is_dir())


@pytest.mark.parametrize("argv", [[], ["--out"], ["--nonsense", "1"], ["--out", "o", "--range-bytes", "one"], ["--out", "/dev/null/x"]])
def test_a_usage_mistake_is_exit_code_3(argv: list[str], capsys: pytest.CaptureFixture) -> None:
    """With one sentence on standard error."""
    with pytest.raises(SystemExit) as ended:
        parse(job_parser("audit", ""), argv)
    assert (3, 1) == (ended.value.code, capsys.readouterr().err.count("\n"))


@pytest.mark.parametrize(("error", "code"), [(BadRequestError("b"), 3), (UnreachableError("u"), 2), (LogFaultError("f"), 1)])
def test_errors_become_a_sentence_and_an_exit_code(error: Exception, code: int, capsys: pytest.CaptureFixture) -> None:
    """No traceback for what a user can understand."""
    def work() -> int:
        raise error

    assert code == run("audit", work)
    assert f"audit failed: {error}\n" == capsys.readouterr().err


def test_sparks_errors_are_shortened_to_our_own() -> None:
    """The line that a task raised, not the hundred around it."""
    text = "An error occurred\nTraceback…\n  File x\nmyqueue.errors.LogFaultError: a/0: offsets are missing\n\tat org.apache.spark…"
    assert ("a/0: offsets are missing", 1) == verdict_of(text)
    assert ("An error occurred", 1) == verdict_of("An error occurred\nwithout ours")


@pytest.mark.parametrize(("error", "code"), [
    ("NotLeaderError", 2), ("OutcomeUnknownError", 2), ("UnreachableError", 2), ("TooLargeError", 1), ("InvalidNameError", 3), ("NoSuchError", 1)])
def test_an_error_in_a_task_ends_the_job_as_the_same_one_outside_does(error: str, code: int) -> None:
    """By its class and the classes above it."""
    assert ("it says why", code) == verdict_of(f"…\nmyqueue.errors.{error}: it says why\n…")
