"""Types of settings, and the decorator of their sections."""

import dataclasses
import functools
import re
from typing import Annotated, Any, get_args

import pydantic
from pydantic import Field

section = functools.partial(
    pydantic.dataclasses.dataclass,
    frozen=True,
    kw_only=True,
    config=pydantic.ConfigDict(
        extra="forbid",
        strict=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    ),
)


def classes_of(kind: Any) -> list[type]:
    """Return the class of a section, or the classes of a union of sections."""
    if isinstance(kind, type):
        return [kind] if dataclasses.is_dataclass(kind) else []
    return [one for argument in get_args(kind) for one in classes_of(argument)]


def description_of(kind: type, name: str) -> str:
    """Return the docstring of a setting, of the base class that has it."""
    for base in kind.__mro__:
        field = getattr(base, "__pydantic_fields__", {}).get(name)
        if field is not None and field.description:
            return field.description
    return ""


Positive = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Share = Annotated[float, Field(gt=0, le=1)]
Rate = Annotated[float, Field(ge=0, lt=1)]
Weight = Annotated[float, Field(ge=0)]

_MAX_PATTERN = 200


def _check_pattern(pattern: str) -> str:
    """Reject invalid regular expressions, and long ones, which could take for ever."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{pattern!r} must be a regular expression: {error}") from None
    if len(pattern) > _MAX_PATTERN:
        raise ValueError(
            f"{pattern[:40]!r} must have at most {_MAX_PATTERN} characters"
        )
    return pattern


Pattern = Annotated[str, pydantic.AfterValidator(_check_pattern)]
