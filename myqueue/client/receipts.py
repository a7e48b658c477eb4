"""The file in which a producer keeps its receipts: one line for each batch that was acknowledged."""

from __future__ import annotations

import contextlib
import os
import stat
import threading

from ..errors import ConfigurationError, ReceiptsError
from ..protocol.receipts import BatchReceipt, line_of


class ReceiptFile:
    """Appends receipts to a file, which threads and processes may share: each line is one write at the file's end.

    A line that is written survives the death of the process; it is not forced to disk. What cannot be written is counted and told by
    ``take_error``, and costs no message: the next receipt is tried again.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises ConfigurationError where the file cannot be opened."""
        self.path = os.fspath(path)
        self._lock = threading.Lock()
        self._missing = 0  # receipts that could not be written and were not told yet
        self._why = ""
        try:
            self._descriptor: int | None = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise ConfigurationError(f"receipts {self.path}: {error.strerror or error}") from None
        self._is_torn = _ends_torn(self._descriptor)

    def write(self, receipt: BatchReceipt) -> None:
        """On its way to the disk when this returns, or counted as missing. After ``close`` nothing is done."""
        line = line_of(receipt)
        with self._lock:
            if self._descriptor is None:
                return
            line = b"\n" + line if self._is_torn else line
            try:
                self._is_torn = os.write(self._descriptor, line) < len(line)
                why = "the disk took a part of the line only"
            except OSError as error:
                failed, why = True, error.strerror or str(error)
            else:
                failed = self._is_torn
            if failed:
                self._missing, self._why = self._missing + 1, why

    def take_error(self) -> ReceiptsError | None:
        """What could not be written since the last call, once."""
        with self._lock:
            missing, self._missing = self._missing, 0
        if not missing:
            return None
        count = "1 batch was acknowledged and has no receipt" if missing == 1 else f"{missing} batches were acknowledged and have no receipts"
        return ReceiptsError(f"{count} in {self.path}: {self._why}; their messages are stored, so do not send them again",
                             path=self.path, batches=missing)

    def close(self) -> None:
        with self._lock:
            descriptor, self._descriptor = self._descriptor, None
            if descriptor is not None:
                with contextlib.suppress(OSError):
                    os.close(descriptor)


def _ends_torn(descriptor: int) -> bool:
    """Whether the last writer died in the middle of a line: the next one begins a line of its own."""
    about = os.fstat(descriptor)
    return stat.S_ISREG(about.st_mode) and about.st_size > 0 and os.pread(descriptor, 1, about.st_size - 1) != b"\n"
