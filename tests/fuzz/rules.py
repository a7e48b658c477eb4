"""PURE. What every answer must be, whatever was asked."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jsonschema_rs

from myqueue.errors import CorruptBatchError, PartlyStoredError, QuotaExceededError
from myqueue.protocol import routes
from myqueue.protocol.batch import ENTRIES_TYPE, messages_of
from myqueue.protocol.openapi import document
from myqueue.protocol.operations import EVENTS_TYPE, JSON_TYPE, OPERATIONS

from . import events
from .wire import FRAMING, NATIVE, PARTITION, Got, Sent

SOMETIMES = {routes.APPLIED_INDEX, "Cache-Control", "ETag", "Vary", routes.OFFSET}  # headers that not every answer of their row has
NOT_OF_A_STREAM = {routes.START_OFFSET, routes.END_OFFSET}  # they move while it goes on
ANSWER_SECONDS_MAX = 8.0  # above the longest wait of a manager for anything
LINE_BYTES = 8_000  # of a request or header line that is too long in any case
OLDER_STATUSES = {"queue": {200, 400, 413, 429, 503}, PARTITION: {200, 201, 400, 413, 429, 503}}
# What a request that is none may be answered with; and one that can be read after all: between nodes without a signature, above a quota.
UNREADABLE = {400, 401, 404, 405, 413, 414, 415, 417, 429, 431, 501, 503}


class Rules:
    """Judges answers by the document and by the contract of the older faces."""

    def __init__(self) -> None:
        told = document()
        self._rows = {one.name: told["paths"][one.path][one.method.lower()]["responses"] for one in OPERATIONS}
        self._components = told["components"]
        self._validators: dict[tuple[str, str, str], Any] = {}

    def broken(self, sent: Sent, got: Got) -> list[str]:
        """What is wrong with an answer, in sentences; empty where nothing is."""
        if got.status == 0:
            return [f"there was no answer: {got.body.decode()}"]
        found = [] if got.seconds <= ANSWER_SECONDS_MAX else [f"it took {got.seconds:.1f} s"]
        if got.status >= 500 and not (got.status == 501 and sent.face == FRAMING):
            found += _of_a_fault(sent, got)
        if sent.face == FRAMING or _is_too_long(sent, got):
            return found + _of_a_framing(got)
        return found + (self._of_native(sent, got) if sent.face == NATIVE else _of_older(sent, got))

    def _of_native(self, sent: Sent, got: Got) -> list[str]:
        responses = self._rows[sent.operation]
        told = responses.get(str(got.status))
        if told is None:
            return [f"the document has no status {got.status} here"]
        kind = got.kind
        if "content" not in told:
            return ["there is a body, and none is due"] if got.body else []
        if kind not in told["content"]:
            return [f"the document has no {kind or 'answer without a type'} with {got.status}"]
        optional = SOMETIMES | NOT_OF_A_STREAM if kind == EVENTS_TYPE else SOMETIMES
        missing = [f"the header {name} is missing" for name in told.get("headers", ()) if name not in got.headers and name not in optional]
        if sent.operation == "read_records" and got.status == 200:
            missing += self._of_a_read(sent, got)
        if kind != JSON_TYPE:
            return missing
        if got.json is None and got.body.strip() != b"null":
            return [*missing, "it is not JSON"]
        validator = self._validator(sent.operation, str(got.status), told["content"][kind]["schema"])
        wrong = [f"{'.'.join(map(str, error.instance_path)) or 'it'}: {error.message[:200]}" for error in validator.iter_errors(got.json)]
        return missing + wrong[:3]

    def _of_a_read(self, sent: Sent, got: Got) -> list[str]:
        """It is of the type that was asked for, and that is well formed."""
        due = kind_due(_header(sent, "Accept"))
        if got.kind != due:
            return [f"it is {got.kind}, and {due} was asked for"]
        if got.kind == EVENTS_TYPE:
            return events.broken(got.body, is_open=got.is_open, begin=_begin_of_stream(sent), check=self._wrong_component)
        return _of_entries(got) if got.kind == ENTRIES_TYPE else []

    def _wrong_component(self, name: str, value: Any) -> list[str]:
        validator = self._validator("component", name, {"$ref": f"#/components/schemas/{name}"})
        return [f"{name}: {error.message[:200]}" for error in validator.iter_errors(value)][:1]

    def _validator(self, operation: str, status: str, schema: dict[str, Any]) -> Any:
        key = (operation, status, "json")
        if key not in self._validators:
            self._validators[key] = jsonschema_rs.Draft202012Validator({**schema, "components": self._components})
        return self._validators[key]


def kind_due(accept: str) -> str:
    """What a read answers with: types are looked for in what the client takes, whatever else it takes; JSON is for all others."""
    return next((kind for kind in (EVENTS_TYPE, ENTRIES_TYPE) if kind in accept.lower()), JSON_TYPE)


def _header(sent: Sent, wanted: str) -> str:
    return next((value for name, value in sent.headers.items() if name.lower() == wanted.lower()), "")


def _begin_of_stream(sent: Sent) -> int | None:
    last_id = _header(sent, "Last-Event-ID").strip()
    return int(last_id) + 1 if last_id.removeprefix("-").isdecimal() else None


def _of_entries(got: Got) -> list[str]:
    try:
        offsets = [message.offset for message in messages_of(got.body, topic="", partition=0)]
    except CorruptBatchError as error:
        return [f"what is stored cannot be read: {error.message}"]
    has_gaps = any(after != before + 1 for before, after in pairwise(offsets))
    return [f"the offsets {offsets[:50]} have gaps"] if has_gaps else []


def _is_too_long(sent: Sent, got: Got) -> bool:
    """Whether the server could not read it for its length: then it is of no face."""
    if got.status == 431:
        return any(len(value) > LINE_BYTES for value in sent.headers.values())
    return got.status == 414 and len(sent.target) > LINE_BYTES


def _of_a_fault(sent: Sent, got: Got) -> list[str]:
    """A 503 that the request itself provoked is none (a framing may ask a broker that does not lead), nor is a batch of which a quota, which was set
    before, let only some partitions take their part; all other answers from 500 on are."""
    told = got.json if isinstance(got.json, dict) else {}
    code = told.get("code") or (told.get("error") or {}).get("code")
    if code == PartlyStoredError.code and {QuotaExceededError.code} == {one["error"]["code"] for one in parts_of(told) if "error" in one}:
        return []
    provoked = got.status == 503 and (code == "not_leader" if sent.face == FRAMING else (
        code == "stale_metadata" and any(name.lower() == routes.MIN_INDEX.lower() for name in sent.headers)))
    if provoked and "Retry-After" in got.headers:
        return []
    if got.status == 503 and "Retry-After" not in got.headers:
        return ["503 without Retry-After"]
    return [f"{code}: nobody provoked it"]


def parts_of(told: Any) -> list[dict[str, Any]]:
    """What an error says of each partition of a batch that was not stored as a whole."""
    return told.get("error", {}).get("details", {}).get("partitions", []) if isinstance(told, dict) else []


def _of_older(sent: Sent, got: Got) -> list[str]:
    body, is_good = got.json, got.status < 300
    if got.status not in OLDER_STATUSES[sent.face]:
        return [f"the face has no status {got.status}"]
    if got.headers.get("Content-Type", "").partition(";")[0] != "application/json" or not isinstance(body, dict):
        return ["it is no JSON object"]
    word = "success" if is_good else "failure"
    word = word.capitalize() if sent.face == PARTITION else word
    found = [] if body.get("status") == word else [f"status is {body.get('status')!r}, not {word!r}"]
    if not is_good and not (isinstance(body.get("message"), str) and len(body["message"]) > 5):
        found.append("the failure has no message")
    if not is_good and sent.face == PARTITION and body.get("reason") != body.get("message"):
        found.append("reason and message differ")
    return found


def _of_a_framing(got: Got) -> list[str]:
    if got.status < 400:
        return []
    found = [] if got.status in UNREADABLE else [f"a request that cannot be read is not a {got.status}"]
    return found if isinstance(got.json, dict) or not got.body else [*found, "it is no JSON object"]
