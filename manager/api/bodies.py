"""Bodies of the native face into values, and its paths as Flask spells them."""

from __future__ import annotations

from typing import Any

from flask import request

from myqueue.errors import BadRequestError
from myqueue.protocol.names import INT64_MAX, parse_integer
from myqueue.service.arguments import json_object

MISSING = object()


def rule(template: str) -> str:
    """A route of ours as Flask writes it."""
    return template.replace("{", "<").replace("}", ">")


def body_of(*known: str) -> dict[str, Any]:
    """The JSON object of the request's body; an empty body is an empty object. Raises BadRequestError."""
    data = request.get_data(cache=True)
    body = json_object(data, request.mimetype_params.get("charset", "utf-8")) if data.strip() else {}
    unknown = sorted(set(body) - set(known))
    if unknown:
        raise BadRequestError(f"there is no field {', '.join(name[:80] for name in unknown[:5])}; known are {', '.join(known)}")
    return body


def integer_of(body: dict[str, Any], name: str, default: Any = MISSING, *, minimum: int = 1, maximum: int = INT64_MAX) -> Any:
    """A whole number of a body; one that is not given or null is the default. Raises BadRequestError, also where there is no default."""
    if body.get(name) is not None:
        return parse_integer(body[name], name=name, minimum=minimum, maximum=maximum)
    if default is MISSING:
        raise BadRequestError(f"{name} is needed: a whole number from {minimum}", argument=name)
    return default


def query_of(*known: str) -> list[str | None]:
    """The arguments of the query string by these names, in their order; None where one is not given.

    Raises:
        BadRequestError: there is another one, or one is given twice.
    """
    unknown, twice = sorted(set(request.args) - set(known)), [name for name in request.args if len(request.args.getlist(name)) > 1]
    if unknown or twice:
        raise BadRequestError(f"{twice[0][:80]} is given twice" if twice else
                              f"there is no argument {', '.join(name[:80] for name in unknown[:5])}; known are {', '.join(known)}")
    return [request.args.get(name) for name in known]
