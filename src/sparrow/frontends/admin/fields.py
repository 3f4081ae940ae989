"""Types of the input of HTTP's routes: bounded texts and numbers, so that hostile ones are
refused before a service is called.

These limits are coarse and bound the cost of one request; the broker checks names and settings
itself, with its own errors. Unknown members are refused, because a misspelt setting would otherwise
be ignored silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, get_args

import msgspec
from msgspec import Meta, Struct

SECRET: Final = "secret"  # noqa: S105 - a name
"""Key in `Meta.extra` of a text that is a secret."""
CHOICES: Final = "choices"
"""Key in `Meta.extra` of a `Literal` for its choices in their order; msgspec does not keep it."""

MAX_NAME_CHARACTERS: Final = 255
"""Characters of the name of a queue, group, user and the like."""
MAX_TOPIC_CHARACTERS: Final = 249
MAX_TEXT_CHARACTERS: Final = 10_000
MAX_ENTRIES: Final = 1000
MAX_TIME_MS: Final = (1 << 62) - 1
TOPIC_PATTERN: Final = {"pattern": "^[a-zA-Z0-9._-]+$"}
"""For the document only; the broker has its own error."""

Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARACTERS)]
TopicName = Annotated[
    str, Meta(min_length=1, max_length=MAX_TOPIC_CHARACTERS, extra_json_schema=TOPIC_PATTERN)
]
MaybeName = Annotated[str, Meta(max_length=MAX_NAME_CHARACTERS)]
Text = Annotated[str, Meta(max_length=MAX_TEXT_CHARACTERS)]
Partition = Annotated[int, Meta(ge=0, lt=1 << 31)]
Offset = Annotated[int, Meta(ge=0, lt=1 << 62)]
Number = Annotated[int, Meta(ge=1, lt=1 << 62)]
TimeMs = Annotated[int, Meta(ge=0, le=MAX_TIME_MS)]

ConfigValue = Text | bool | int | float
Config = Annotated[dict[Name, ConfigValue], Meta(max_length=MAX_ENTRIES)]
"""Settings of a topic by name; numbers and booleans are written as Kafka writes them."""
Policy = Annotated[dict[Name, Any], Meta(max_length=MAX_ENTRIES)]
TopicNames = Annotated[list[TopicName], Meta(max_length=MAX_ENTRIES)]
Names = Annotated[list[Name], Meta(max_length=MAX_ENTRIES)]


class Body(Struct, forbid_unknown_fields=True):
    """A JSON object that a client sends. Types are strict: `"3"` is not a number."""


class Listing(Struct):
    """The query of routes that list by name."""

    pattern: Annotated[
        MaybeName,
        Meta(description="Only names that match: `*` matches any characters, `?` a single one."),
    ] = "*"


def choices(literal: object) -> Meta:
    """Return the choices of a `Literal` in their order, which msgspec does not keep."""
    return Meta(extra={CHOICES: get_args(literal)}, extra_json_schema={"type": "string"})


def given(body: Struct) -> dict[str, Any]:
    """Return the members of a body that were given."""
    return {name: value for name, value in msgspec.structs.asdict(body).items() if value is not msgspec.UNSET}


def config_texts(config: Mapping[str, str | bool | int | float]) -> dict[str, str]:
    """Return settings as Kafka writes them."""
    return {
        name: value
        if isinstance(value, str)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
        for name, value in config.items()
    }
