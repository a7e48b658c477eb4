from __future__ import annotations

import json
import logging
import sys

from myqueue.service.logs import JsonFormatter


def line(message: str, *arguments: object, **extra: object) -> dict:
    record = logging.LogRecord("a.b", logging.WARNING, "file.py", 1, message, arguments, None)
    vars(record).update(extra)
    text = JsonFormatter("node-1").format(record)
    assert "\n" not in text
    return json.loads(text)


def test_a_line_is_one_json_object_whatever_the_message_holds() -> None:
    logged = line('two\nlines "quoted" %s', {"a": "ü"})
    assert ("warning", "node-1", "a.b", "two\nlines \"quoted\" {'a': 'ü'}") == tuple(logged[name] for name in ("level", "node", "logger", "message"))


def test_what_is_passed_as_extra_is_in_the_line_even_where_json_has_no_form_for_it() -> None:
    logged = line("m", request_id="r1", odd=object)
    assert ("r1", str(object)) == (logged["request_id"], logged["odd"])


def test_the_time_is_utc_with_milliseconds() -> None:
    assert "1970-01-01T00:00:01.500Z" == line("m", created=1.5, msecs=500.0)["time"]


def test_a_traceback_stays_in_its_line() -> None:
    try:
        raise ValueError("why")
    except ValueError:
        logged = line("m", exc_info=sys.exc_info())
    assert "ValueError: why" in logged["exception"]
