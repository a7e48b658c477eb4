"""What every public blueprint of a manager does around its views: a bound on requests, and freshness."""

from __future__ import annotations

import threading

from flask import Blueprint, Response, g, request

from manager.replica import Replica
from myqueue.errors import MethodNotAllowedError, OverloadedError, UnavailableError
from myqueue.protocol import routes
from myqueue.protocol.names import parse_integer


class Gate:
    """Keeps some request threads free for the calls between nodes, on which everything else waits; and is shut before the process ends."""

    def __init__(self, slots: int) -> None:
        self._slots, self._inside, self.is_shut = slots, 0, False
        self._changed = threading.Condition()

    def enter(self) -> None:
        """Raises OverloadedError where too many public requests are under way, UnavailableError where none is taken any more."""
        with self._changed:
            if self.is_shut:
                g.not_taken = True
                raise UnavailableError("this manager is about to end; nothing was done")
            if self._inside >= self._slots:
                raise OverloadedError("too many requests are under way on this manager; nothing was done")
            self._inside += 1
        g.in_gate = True

    def leave(self) -> None:
        if g.pop("in_gate", False):
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def shut(self, *, least_seconds: float, most_seconds: float) -> None:
        """Take no public request any more, and wait until those under way are answered.

        At least so long that balancers with requests for this node have heard that it takes none.
        """
        with self._changed:
            self.is_shut = True
            self._changed.wait_for(lambda: False, least_seconds)
            self._changed.wait_for(lambda: self._inside == 0, most_seconds - least_seconds)


def install(blueprint: Blueprint, *, gate: Gate, replica: Replica) -> None:
    """Give a blueprint its hooks."""

    @blueprint.before_request
    def enter() -> None:
        gate.enter()
        if request.method == "HEAD" and request.url_rule is not None and "POST" in (request.url_rule.methods or ()):
            raise MethodNotAllowedError(f"{request.path[:200]} does not know HEAD")  # a GET with an effect, such as consume
        wanted = request.headers.get(routes.MIN_INDEX)
        if wanted is not None:
            replica.require(parse_integer(wanted, name=routes.MIN_INDEX))
        preferred = request.headers.get(routes.PREFER_INDEX)
        if preferred is not None:
            replica.prefer(parse_integer(preferred, name=routes.PREFER_INDEX))

    @blueprint.teardown_request
    def leave(_error: BaseException | None) -> None:
        gate.leave()

    @blueprint.after_request
    def freshness(response: Response) -> Response:
        index = replica.applied_index() if request.method in ("GET", "HEAD") else replica.index_of_writes()
        if index:
            response.headers[routes.APPLIED_INDEX] = str(index)
        response.headers[routes.FRESHNESS] = f"{min(replica.freshness_seconds(), 1e9):.3f}"
        if g.pop("not_taken", False):
            response.headers[routes.NOT_TAKEN] = "1"
        return response
