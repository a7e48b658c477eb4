"""Settings, declared once: flag beats environment beats default.

A settings class is a frozen dataclass whose fields are made with :func:`setting`. The field's name gives the flag
(``heartbeat_interval_seconds`` → ``--heartbeat-interval-seconds``) and, with the class's ``ENV_PREFIX``, the variable
(``MYQUEUE_BROKER_HEARTBEAT_INTERVAL_SECONDS``). Unknown variables under the prefix stop the start, so that a
misspelt one is not silently ignored.
"""

from __future__ import annotations

import argparse
import dataclasses
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from .errors import ConfigurationError

S = TypeVar("S")
MASK = "********"
# Variables under MYQUEUE_ that belong to no single service.
SHARED_VARIABLES = frozenset({"MYQUEUE_TOKEN", "MYQUEUE_FAULT", "MYQUEUE_TEST_MODE", "MYQUEUE_BOOTSTRAP", "MYQUEUE_DATA"})


def setting(default: Any = dataclasses.MISSING, *, help: str, secret: bool = False, minimum: float | None = None,
            maximum: float | None = None, choices: Sequence[str] | None = None, env: str | None = None) -> Any:
    """One setting. Without a default it must be given. Bounds are inclusive. ``env`` overrides the variable's name."""
    return dataclasses.field(default=default, metadata={"help": help, "secret": secret, "minimum": minimum,
                                                        "maximum": maximum, "choices": choices, "env": env})


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def variable_of(cls: type, field: dataclasses.Field) -> str:
    return field.metadata["env"] or f"{cls.ENV_PREFIX}_{field.name.upper()}"  # type: ignore[attr-defined]


def _convert(kind: Any, text: str) -> Any:
    if kind is bool:
        lowered = text.lower()
        if lowered not in ("true", "false", "1", "0", "yes", "no"):
            raise ValueError("wants true or false")
        return lowered in ("true", "1", "yes")
    if kind in (int, float, str):
        return kind(text)
    if typing.get_origin(kind) is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    options = [option for option in typing.get_args(kind) if option is not type(None)]  # X | None
    assert len(options) == 1, f"a setting cannot be of type {kind}"
    return _convert(options[0], text)


def _check(field: dataclasses.Field, value: Any, source: str) -> None:
    meta = field.metadata
    if value is None:
        return
    if meta["minimum"] is not None and value < meta["minimum"]:
        raise ConfigurationError(f"{source} is {value}: the least is {meta['minimum']}")
    if meta["maximum"] is not None and value > meta["maximum"]:
        raise ConfigurationError(f"{source} is {value}: the most is {meta['maximum']}")
    if meta["choices"] and value not in meta["choices"]:
        raise ConfigurationError(f"{source} is {value!r}: it must be one of {', '.join(meta['choices'])}")


def add_arguments(parser: argparse.ArgumentParser, cls: type) -> None:
    """Give a parser one flag per setting; defaults stay out of it, so that the environment can be told from a flag."""
    for field in dataclasses.fields(cls):
        shown_default = MASK if field.metadata["secret"] and field.default else field.default
        default = "required" if field.default is dataclasses.MISSING else f"default: {shown_default}"
        parser.add_argument(flag_of(field.name), dest=field.name, default=None, metavar=field.name.split("_")[-1].upper(),
                            help=f"{field.metadata['help']} ({variable_of(cls, field)}; {default})".replace("%", "%%"))


def load(cls: type[S], flags: Mapping[str, str | None], environment: Mapping[str, str]) -> S:
    """Build the settings from parsed flags (strings or None) and the environment.

    Raises:
        ConfigurationError: a value is missing, malformed or out of bounds, or a variable under the prefix is unknown.
    """
    kinds = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    known = {variable_of(cls, field) for field in fields.values()} | SHARED_VARIABLES
    prefix = cls.ENV_PREFIX + "_"  # type: ignore[attr-defined]
    for name in sorted(environment):
        if name.startswith(prefix) and name not in known:
            raise ConfigurationError(f"unknown variable {name}: {cls.__name__} knows {', '.join(sorted(known - SHARED_VARIABLES))}")
    values: dict[str, Any] = {}
    for name, field in fields.items():
        source = flag_of(name)
        text = flags.get(name)
        if text is None:
            source = variable_of(cls, field)
            text = environment.get(source)
        if text is None:
            if field.default is dataclasses.MISSING:
                raise ConfigurationError(f"{flag_of(name)} (or {source}) is needed: {field.metadata['help']}")
            continue
        try:
            values[name] = _convert(kinds[name], text)
        except ValueError as error:
            told = f"{MASK}, which is malformed" if field.metadata["secret"] else f"{text!r}: {error}"
            raise ConfigurationError(f"{source} is {told}") from None
        _check(field, values[name], source)
    settings = cls(**values)
    validate = getattr(settings, "validate", None)
    if validate:
        validate()
    return settings


def parse(cls: type[S], argv: Sequence[str], environment: Mapping[str, str], *, prog: str, description: str) -> S:
    """What a service's ``__main__`` does: arguments and environment to settings; a bad one ends with one sentence and exit code 2."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    add_arguments(parser, cls)
    flags = vars(parser.parse_args(argv))
    try:
        return load(cls, flags, environment)
    except ConfigurationError as error:
        parser.exit(2, f"{prog}: {error.message}\n")


def shown(settings: Any) -> dict[str, Any]:
    """The settings as they may be logged: secrets masked."""
    return {field.name: MASK if field.metadata["secret"] and getattr(settings, field.name) else getattr(settings, field.name)
            for field in dataclasses.fields(settings)}
