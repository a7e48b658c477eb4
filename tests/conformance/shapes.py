"""What an answer must look like: exactly these fields, each of its type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Shape = Any  # a type; a value, which must be equal; [shape], a list of it; {name: shape}, an object with exactly these fields; OneOf


@dataclass(frozen=True)
class OneOf:
    """Any of several shapes."""

    shapes: tuple[Shape, ...]


def one_of(*shapes: Shape) -> OneOf:
    return OneOf(shapes)


NUMBER = one_of(int, float)


def misfits(shape: Shape, value: Any, at: str = "the answer") -> list[str]:
    """What is wrong with a value, each with its place; nothing where it fits. A boolean is no number here, and a number no boolean."""
    if isinstance(shape, OneOf):
        return [] if any(not misfits(each, value) for each in shape.shapes) else [f"{at} is {value!r}, which is none of {shape.shapes}"]
    if isinstance(shape, dict):
        return _misfits_of_object(shape, value, at)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [f"{at} is {value!r} and not a list"]
        return [found for place, each in enumerate(value) for found in misfits(shape[0], each, f"{at}[{place}]")]
    if isinstance(shape, type):
        return [] if type(value) is shape else [f"{at} is {value!r} and not of type {shape.__name__}"]
    return [] if type(value) is type(shape) and value == shape else [f"{at} is {value!r} and not {shape!r}"]


def _misfits_of_object(shape: dict[str, Shape], value: Any, at: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{at} is {value!r} and not an object"]
    found = [f"{at} lacks {name}" for name in shape if name not in value]
    found += [f"{at} has {name}, which is not agreed" for name in value if name not in shape]
    return found + [each for name in shape if name in value for each in misfits(shape[name], value[name], f"{at}.{name}")]
