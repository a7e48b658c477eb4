"""What every job does around its work: arguments to settings, errors to one sentence and an exit code."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from myqueue import errors
from myqueue.errors import BadRequestError, ConfigurationError, MyQueueError, UnavailableError
from myqueue.protocol.names import parse_time
from myqueue.settings import add_arguments, load

from ..audit.findings import FINDINGS, INCOMPLETE, USAGE
from ..settings import PipelineSettings

T = TypeVar("T")
EXIT_CODES = "Exit codes: 0 clean and complete, 1 findings or counts that differ, 2 not everything could be checked or asked, 3 usage."


class JobParser(argparse.ArgumentParser):
    """A parser whose usage errors end with 3, as the jobs' exit codes have it."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: {message} (--help says more)\n")


def job_parser(name: str, description: str, *, prog: str | None = None) -> JobParser:
    parser = JobParser(prog=prog or f"spark-submit {name}", description=description, epilog=EXIT_CODES)
    add_arguments(parser, PipelineSettings)
    return parser


def parse(parser: JobParser, argv: Sequence[str]) -> tuple[PipelineSettings, argparse.Namespace]:
    """Flags and environment to settings, with the folder made. A mistake ends with a sentence and exit code 3."""
    flags = parser.parse_args(argv)
    try:
        settings = load(PipelineSettings, vars(flags), os.environ)
        make_folder(settings.out)
    except ConfigurationError as error:
        parser.error(error.message)
    return settings, flags


def add_window(parser: JobParser) -> None:
    """``--since`` and ``--until``: bounds on the append time."""
    parser.add_argument("--since", type=checked(parse_time), metavar="TIME",
                        help="only what was appended at this time or later: microseconds since 1970, or as 2026-03-01T12:00:00Z")
    parser.add_argument("--until", type=checked(parse_time), metavar="TIME", help="only what was appended before this time")


def checked(parse: Callable[[str], T]) -> Callable[[str], T]:
    """A parser as argparse wants it: its refusal is the sentence that is shown."""
    def checked(text: str) -> T:
        try:
            return parse(text)
        except BadRequestError as error:
            raise argparse.ArgumentTypeError(error.message) from None

    return checked


def make_folder(path: str) -> Path:
    """Raises ConfigurationError where it cannot be made or written."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"--out {path}: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigurationError(f"--out {path}: not writable")
    return folder


def run(name: str, work: Callable[[], int]) -> int:
    """Do the work; an error becomes one sentence and the exit code that fits."""
    from pyspark.errors import PySparkException

    try:
        return work()
    except MyQueueError as error:
        return failed(name, error)
    except PySparkException as error:
        return _fail(name, *verdict_of(str(error)))


def failed(name: str, error: MyQueueError) -> int:
    """Say an error of ours in one sentence; the exit code that fits it."""
    return _fail(name, error.message, code_of(type(error)))


def code_of(kind: type) -> int:
    """The exit code for errors of this class, wherever they were raised."""
    codes = ((BadRequestError, USAGE), (UnavailableError, INCOMPLETE))
    return next((code for parent, code in codes if issubclass(kind, parent)), FINDINGS)


def verdict_of(text: str) -> tuple[str, int]:
    """Of a Spark error's text the one line that says what went wrong (our own error's, where a task raised one), and the exit code that fits it."""
    ours = re.findall(r"myqueue\.errors\.(\w+): (.+)", text)
    kind, sentence = ours[-1] if ours else ("", text.strip().split("\n")[0])
    return sentence[:500], code_of(getattr(errors, kind, MyQueueError))


def _fail(name: str, sentence: str, code: int) -> int:
    print(f"{name} failed: {sentence}", file=sys.stderr)
    return code
