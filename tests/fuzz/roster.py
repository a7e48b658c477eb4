"""Consumer groups that are there, with their members: what is drawn as *the member* or *the generation* becomes theirs when it is sent.

Their numbers depend on the cluster and change all the time, so the seed draws no more than that one of them is meant.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from urllib.parse import unquote

from myqueue.errors import UnknownGroupError
from myqueue.protocol import routes

from .ledger import call
from .wire import NATIVE, Client, Got, Sent

MEMBER, GENERATION = 999_999_001, 999_999_002  # as they are drawn
SESSION_SECONDS = 3_600  # no member falls silent in a run


@dataclass(slots=True)
class _Known:
    member_id: int = 1
    generation: int = 1


class Roster:
    """The groups of a run: those whose member stays, one whose member may leave, and one without members."""

    def __init__(self, topics: tuple[str, ...], *, staying: tuple[str, ...], leaving: str, idle: str) -> None:
        self._topics, self._with_member, self._idle = topics, (*staying, leaving), idle
        self._known = {name: _Known() for name in (*self._with_member, idle)}

    def gather(self, client: Client) -> None:
        """Each has the members that it is to have, and no other."""
        for name in self._known:
            self.note(client.ask(_join(name, self._topics)))
            described = call(client, "GET", routes.GROUP.format(group=name))
            stays = {self._known[name].member_id} if name in self._with_member else set()
            for member_id in {one["member_id"] for one in described["member_list"]} - stays:
                call(client, "DELETE", routes.MEMBER.format(group=name, member_id=member_id))
        for name in self._with_member:
            path = routes.MEMBER_HEARTBEAT.format(group=name, member_id=self._known[name].member_id)
            self.note(client.ask(Sent(NATIVE, "member_heartbeat", "POST", path)))

    def disband(self, client: Client, prefix: str) -> None:
        """No group whose name begins so is there any more."""
        for group in call(client, "GET", routes.GROUPS)["groups"]:
            if group["group"].startswith(prefix):
                self._forget(client, group["group"])

    def note(self, got: Got) -> None:
        """Take an answer into account that tells of a group."""
        body = got.json
        if got.status >= 300 or not isinstance(body, dict) or body.get("group") not in self._known or "generation" not in body:
            return
        known = self._known[body["group"]]
        known.generation = body["generation"]
        if body.get("instance_id") == body["group"]:
            known.member_id = body["member_id"]

    def named(self, sent: Sent) -> Sent:
        """The request, with the numbers of the group that it speaks of."""
        parts = sent.path.split("/")
        known = self._known.get(unquote(parts[3]), _Known()) if sent.path.startswith(routes.GROUPS + "/") else _Known()
        return replace(sent, target=sent.target.replace(str(MEMBER), str(known.member_id)),
                       body=sent.body.replace(str(GENERATION).encode(), str(known.generation).encode()))

    def _forget(self, client: Client, name: str) -> None:
        for member in call(client, "GET", routes.GROUP.format(group=name))["member_list"]:
            call(client, "DELETE", routes.MEMBER.format(group=name, member_id=member["member_id"]))
        got = client.ask(Sent(NATIVE, "delete_group", "DELETE", routes.GROUP.format(group=name)))
        assert got.status == 200 or got.json["error"]["code"] == UnknownGroupError.code, got


def _join(name: str, topics: tuple[str, ...]) -> Sent:
    """Under the group's own name as instance, so that the same one comes again."""
    body = {"topics": topics, "instance_id": name, "session_timeout_seconds": SESSION_SECONDS}
    return Sent(NATIVE, "join_group", "POST", routes.MEMBERS.format(group=name), {"Content-Type": "application/json"}, json.dumps(body).encode())
