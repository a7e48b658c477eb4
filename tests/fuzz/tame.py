"""PURE. What is drawn may ask for anything, but not to leave this machine, to take the cluster apart, or to wait for long on purpose.

What a request may do is decided here, on its bytes, and not where it is drawn.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from myqueue.protocol import limits, routes

from .native import Pool
from .wire import Sent

NOBODY = 999  # a broker or manager that is not there
PARTITIONS_MAX = 4
WAIT_SECONDS = 0.02
INDEX_MAX = 50
_NODE = re.compile(r"(/v1/(?:brokers|managers)/)([^/?]+)(.*)", re.DOTALL)
_TOPIC = re.compile(r"(/v1/topics/)([^/?]+)((?:/.*)?)", re.DOTALL)
_MEMBER = re.compile(r"(/v1/groups/)([^/?]+)(/members/[^/?]+/?)")
_DISTURBS = re.compile(r"/partitions/[^/]+/(?:elect|move|repair)/?")


@dataclass
class Budget:
    """How often in a run something slow may be asked for."""

    left: dict[str, int] = field(default_factory=lambda: {"fresh": 3})

    def take(self, what: str) -> bool:
        self.left[what] -= 1
        return self.left[what] >= 0


def tame(sent: Sent, pool: Pool, budget: Budget) -> Sent:
    """The request, made harmless where it is not; native requests only: the older faces are drawn harmless."""
    path, mark, query = sent.target.partition("?")
    node = _NODE.fullmatch(path)
    if node and 0 < _number(unquote(node[2])) < NOBODY:
        path = f"{node[1]}{NOBODY}{node[3]}"
    topic = _TOPIC.fullmatch(path)
    disturbs = topic is not None and ((sent.method == "DELETE" and topic[3] in ("", "/")) or _DISTURBS.fullmatch(topic[3]) is not None)
    if topic is not None and disturbs and unquote(topic[2]) in pool.topics:
        path = topic[1] + quote(pool.doomed) + topic[3]
    member = _MEMBER.fullmatch(path)
    if member and sent.method == "DELETE" and unquote(member[2]) in pool.groups:
        path = member[1] + quote(pool.leaving) + member[3]
    if mark:
        pairs = [(name, str(WAIT_SECONDS) if name == "wait_seconds" and _seconds(value) > WAIT_SECONDS else value)
                 for name, value in parse_qsl(query, keep_blank_values=True, errors="surrogateescape")]
        query = urlencode(pairs, errors="surrogateescape") if any(name == "wait_seconds" for name, _ in pairs) else query
    headers = {name: "1" if name in (routes.MIN_INDEX, routes.PREFER_INDEX) and _number(value) > INDEX_MAX and not budget.take("fresh") else value
               for name, value in sent.headers.items()}
    return replace(sent, target=f"{path}{mark}{query}", headers=headers, body=_tame_body(sent, path.rstrip("/"), pool))


def _tame_body(sent: Sent, path: str, pool: Pool) -> bytes:
    is_new_broker = path == routes.BROKERS and sent.method == "POST"
    if is_new_broker and not sent.body.strip():
        return json.dumps(_at(pool)).encode()  # without an address a broker would be started
    try:
        body: Any = json.loads(sent.body)
    except (ValueError, RecursionError):
        return sent.body
    if not isinstance(body, dict):
        return sent.body
    changed = dict(body)
    if PARTITIONS_MAX < _number(body.get("partitions")) <= limits.PARTITIONS_MAX:
        changed["partitions"] = PARTITIONS_MAX
    config = body.get("config")
    if isinstance(config, dict) and _number(config.get("partitions_max")) > PARTITIONS_MAX:
        changed["config"] = {**config, "partitions_max": PARTITIONS_MAX}
    brokers = body.get("brokers")
    if sent.operation == "move_partition" and isinstance(brokers, list) and brokers and all(0 < _number(one) < NOBODY for one in brokers):
        changed["brokers"] = None  # the replicas would move in the background, and others' requests be told to come again
    if isinstance(body.get("url"), str) and "://" in body["url"]:
        changed["url"] = ("http://127.0.0.1:1", "http://localhost:9", "http://[::1]:1")[len(body["url"]) % 3]
    if is_new_broker and (body.get("host"), body.get("port")) != (None, None) and isinstance(body.get("host"), str):
        changed["host"] = _at(pool)["host"]
        changed["port"] = body.get("port") if _number(body.get("port")) < 1 else pool.ports[_number(body["port"]) % len(pool.ports)]
    elif is_new_broker and body.get("host") is None and body.get("port") is None:
        changed |= _at(pool)
    return sent.body if changed == body else json.dumps(changed).encode()


def _at(pool: Pool) -> dict[str, Any]:
    return {"host": "127.0.0.1", "port": pool.ports[0]}


def _number(value: Any) -> int:
    try:
        return -1 if isinstance(value, (bool, float)) else int(str(value).strip())
    except ValueError:
        return -1


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
