"""A stand-in for a broker on loopback: the internal calls that managers make, over lists in memory.

For tests of managers alone. It can be told to fail: ``stub.failing["dequeue"] = error``.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import uuid
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import requests

from myqueue.errors import MyQueueError, NotLeaderError, RefusedError, UnknownPartitionError
from myqueue.protocol import wire
from myqueue.protocol.batch import BATCH_TYPE, blocks_of, records_of

Partition = tuple[int, int]
_PARTITION_PATH = re.compile(r"/internal/partitions/(\d+)/(\d+)/(\w+)")


class BrokerStub:
    """One broker. Use as a context manager; ``register`` presents it to a manager."""

    def __init__(self, name: str = "broker_1") -> None:
        self.disk_id = str(uuid.uuid4())
        self.broker_id: int | None = None
        self.cluster_id: str | None = None
        self.logs: dict[Partition, list[dict[str, Any]]] = {}
        self.offsets: dict[tuple[Partition, str], int] = {}
        self.requests: dict[tuple[Partition, str, str], int] = {}
        self.promised: dict[Partition, int] = {}
        self.appointed: dict[Partition, dict[str, Any]] = {}
        self.learning: dict[Partition, list[int]] = {}
        self.peers: dict[int, str] = {}  # other brokers' disks, for learners
        self.calls: list[str] = []
        self.failing: dict[str, MyQueueError] = {}
        self.refusing = False  # appointments are not taken
        self._name, self._lock = name, threading.Lock()
        self._stopping = threading.Event()
        self._beating: threading.Thread | None = None

    def __enter__(self) -> BrokerStub:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        return self

    def beat_to(self, urls: Sequence[str]) -> None:
        """Show life to the first manager that answers, now and once a second, until the end."""

        def beat() -> None:
            body = {"heartbeats": [{"type": "broker", "actor_id": self.broker_id, "age_seconds": 0}]}
            with requests.Session() as session:
                session.trust_env = False  # the environment changes under us: pytest names the test that runs in it
                while not self._stopping.is_set():
                    for url in urls:
                        with contextlib.suppress(requests.RequestException):
                            if session.post(f"{url}/internal/heartbeats", json=body, timeout=2).ok:
                                break
                    self._stopping.wait(1.0)

        self._beating = threading.Thread(target=beat, daemon=True)
        self._beating.start()

    def __exit__(self, *exc: object) -> None:
        self._stopping.set()
        if self._beating is not None:
            self._beating.join(10)
        self._server.shutdown()
        self._thread.join(5)
        self._server.server_close()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """While inside, calls wait for their answer."""
        with self._lock:
            yield

    @property
    def description(self) -> dict[str, Any]:
        database = {"host": "127.0.0.1", "port": 5432, "name": self._name, "user": "reader"}
        return {"cluster_id": self.cluster_id, "broker_id": self.broker_id, "disk_id": self.disk_id, "host": "127.0.0.1", "port": self.port,
                "database": database}

    def answer(self, method: str, path: str, body: Any) -> Any:
        """The JSON answer to a call, or a MyQueueError."""
        match = _PARTITION_PATH.fullmatch(path)
        name = match[3] if match else path.rsplit("/", 1)[-1]
        if name == "readyz":  # asked now and then, whatever a test is about
            return {}
        with self._lock:
            self.calls.append(name)
            if name in self.failing:
                raise self.failing[name]
            if match:
                return getattr(self, f"_{name}")((int(match[1]), int(match[2])), body)
            return getattr(self, f"_{name}")(body)

    def _identity(self, _body: Any) -> Any:
        return self.description

    def _appoint(self, body: Any) -> Any:
        results = []
        for one in body["appointments"]:
            place = one["topic_id"], one["partition"]
            if self.refusing:
                results.append({"topic_id": place[0], "partition": place[1], "ok": False, "error": "not now"})
                continue
            self.logs.setdefault(place, [])
            self.appointed[place] = one
            self.learning[place] = one.get("learners", [])
            results.append({"topic_id": place[0], "partition": place[1], "ok": True, "promised_epoch": one["epoch"]})
        return {"results": results}

    def _promise(self, body: Any) -> Any:
        """A replica without entries of its own epochs: all logs are equal, so that the coordinator's preference decides."""
        results = []
        for one in body["promises"]:
            place = one["topic_id"], one["partition"]
            answer = {"topic_id": place[0], "partition": place[1]}
            if one["epoch"] < self.promised.get(place, 0):
                results.append({**answer, "ok": False, **wire.error_to_json(RefusedError("a higher epoch is promised"))})
                continue
            self.promised[place] = one["epoch"]
            self.logs.setdefault(place, [])
            results.append({**answer, "ok": True, "promised_epoch": one["epoch"], "disk_id": self.disk_id, "end_epoch": 1,
                            "end_lsn": len(self.logs[place]), "commit_lsn": 0, "seeding": False})
        return {"results": results}

    def _learners(self, body: Any) -> Any:
        results = []
        for one in body["learners"]:
            self.learning[one["topic_id"], one["partition"]] = one["learners"]
            results.append({"topic_id": one["topic_id"], "partition": one["partition"], "ok": True})
        return {"results": results}

    def _status(self, body: Any) -> Any:
        """As a leader whose followers and learners have all that there is."""
        places = [tuple(place) for place in body.get("partitions", self.logs)]
        return {"partitions": [self._status_of(place) for place in places if place in self.logs]}

    def _status_of(self, place: Partition) -> dict[str, Any]:
        voters, end = self.appointed.get(place, {}).get("voters", {}), len(self.logs[place])
        others = {**voters, **{str(number): self.peers.get(number) for number in self.learning.get(place, ())}}
        epoch = self.appointed.get(place, {}).get("epoch", 0)
        return {"topic_id": place[0], "partition": place[1], "promised_epoch": max(epoch, self.promised.get(place, 0)), "leader_epoch": epoch,
                "leading": place in self.appointed, "start_lsn": 0, "end_lsn": end, "end_offset": end, "commit_lsn": end, "commit_offset": end,
                "applied_lsn": end, "committed_in_epoch": True, "seeding": False, "fault": None,
                "replicas": {number: {"disk_id": disk_id, "matched_lsn": end, "counts": number in voters, "disk_lost": False, "age_seconds": 0.1}
                             for number, disk_id in others.items() if number != str(self.broker_id)}}

    def _drop(self, body: Any) -> Any:
        gone = [tuple(place) for place in body.get("partitions", ())]
        self.logs = {place: log for place, log in self.logs.items() if place[0] not in body["topic_ids"] and place not in gone}
        return {}

    def _records(self, place: Partition, body: Any) -> Any:
        log = self._log(place)
        base = len(log)
        log += body["records"]
        return {"topic": "", "partition": place[1], "base_offset": base, "record_count": len(body["records"]), "append_time": 1, "duplicate": False}

    def _dequeue(self, place: Partition, body: Any) -> Any:
        log, consumer = self._log(place), body["consumer"]
        request = (place, consumer, body.get("request_id") or "")
        if request[2] and request in self.requests:
            return self._message(log, self.requests[request])
        offset = self.offsets.get((place, consumer), 0)
        if body.get("known_only") or offset >= len(log):
            return {"empty": True}
        self.offsets[(place, consumer)] = offset + 1
        if request[2]:
            self.requests[request] = offset
        return self._message(log, offset)

    def _offsets(self, place: Partition, body: Any) -> Any:
        offset = len(self._log(place)) if body.get("start") == "latest" else body["offset"]
        self.offsets[(place, body["consumer"])] = offset
        return {"offset": offset}

    def _sizes(self, body: Any) -> Any:
        places = [tuple(place) for place in body["partitions"]]
        offsets = [self.offsets.get((place, body["consumer"])) for place in places]
        ends = [len(self._log(place)) for place in places]
        return {"sizes": [end - (offset or 0) for end, offset in zip(ends, offsets, strict=True)],
                "positions": [{"offset": offset, "start_offset": 0, "end_offset": end} for end, offset in zip(ends, offsets, strict=True)]}

    def _ends(self, body: Any) -> Any:
        return {"ends": [len(self._log(tuple(place))) for place in body["partitions"]]}

    def _search(self, body: Any) -> Any:
        """By key alone."""
        log, first = self._log(tuple(body["partition"])), body["offset"] or 0
        until = min(body["end"], first + body["max_scanned"])
        hits = [offset for offset in range(first, until) if log[offset].get("key") == body.get("key")][:body["max_records"]]
        after = hits[-1] + 1 if len(hits) == body["max_records"] else until
        return {"records": [{**self._message(log, offset), "append_time": 1} for offset in hits], "next_offset": after, "scanned": after - first}

    def _log(self, place: Any) -> list[dict[str, Any]]:
        if place not in self.logs:
            raise UnknownPartitionError(f"partition {place} is not here")
        return self.logs[place]

    @staticmethod
    def _message(log: list[dict[str, Any]], offset: int) -> Any:
        return {"offset": offset, "timestamp": 1_700_000_000_000_000 + offset, **log[offset]}


def _body(kind: str | None, data: bytes) -> Any:
    """The JSON of a call; a packed batch as the records it stands for."""
    if kind != BATCH_TYPE:
        return json.loads(data) if data else None
    records = [record for block in blocks_of(data) for record in records_of(block)]
    return {"records": [{**wire.value_to_json(one.value), **({} if one.key is None else wire.value_to_json(one.key, "key"))} for one in records]}


def _handler(stub: BrokerStub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def _serve(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                status, body = 200, stub.answer(self.command, self.path, _body(self.headers.get("Content-Type"), data))
            except MyQueueError as error:
                status, body = error.status, wire.error_to_json(error)
            except AttributeError:
                status, body = 503, wire.error_to_json(NotLeaderError(f"{self.path} is not known here"))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the caller may have given up
                self._answer(status, json.dumps(body).encode())

        def _answer(self, status: int, text: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = _serve

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
