"""PURE: keys and times as people can read them, whatever bytes a key has."""

from __future__ import annotations

import codecs
import json
from datetime import UTC, datetime

KEY_BYTES_SHOWN = 48
_DATETIME_END_US = 253_402_300_800_000_000  # 10000-01-01
_HEX_SHOWN = 24


def key_text(beginning: bytes, length: int) -> str:
    """Printable UTF-8 in quotation marks, other bytes in hexadecimal figures without any; of a long key the beginning and its length.

    Nothing that a terminal obeys or a line's direction follows gets through: what is not printable makes a key binary.
    """
    cut_off = length > len(beginning[:KEY_BYTES_SHOWN])
    try:
        text: str | None = codecs.getincrementaldecoder("utf-8")().decode(beginning[:KEY_BYTES_SHOWN], final=not cut_off)
    except UnicodeDecodeError:
        text = None
    if text is not None and text.isprintable():
        return json.dumps(text, ensure_ascii=False) + (f"… ({length:,} bytes)" if cut_off else "")
    shown = beginning[:_HEX_SHOWN]
    return "hex " + shown.hex(" ") + (f"… ({length:,} bytes)" if length > len(shown) else "")


def time_text(time_us: int | None) -> str:
    """A time to the second, in UTC; nothing where there is none."""
    if time_us is None:
        return ""
    if not 0 <= time_us < _DATETIME_END_US:
        return f"{time_us} µs"
    return datetime.fromtimestamp(time_us // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def hour_text(hour: int) -> str:
    """An hour, counted from 1970, as its beginning."""
    return time_text(hour * 3_600_000_000).removesuffix(":00")
