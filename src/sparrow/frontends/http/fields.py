"""Types of the bodies of administration routes: bounded texts and numbers, so that hostile ones are
refused before a service is called.

These limits are coarse and bound the cost of one request; the broker checks names and settings
itself, with its own errors. Unknown members are refused, because a misspelt setting would otherwise
be ignored silently.
"""

from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

MAX_NAME_CHARACTERS = 255
"""Characters of the name of a queue, group, user and the like."""
MAX_TOPIC_CHARACTERS = 249
MAX_TEXT_CHARACTERS = 10_000
MAX_ENTRIES = 1000
MAX_TIME_MS = (1 << 62) - 1

_TOPIC_PATTERN = {"pattern": "^[a-zA-Z0-9._-]+$"}
"""For the document only; the broker has its own error."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_CHARACTERS)]
TopicName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_TOPIC_CHARACTERS),
    Field(json_schema_extra=_TOPIC_PATTERN),
]
MaybeName = Annotated[str, StringConstraints(max_length=MAX_NAME_CHARACTERS)]
Text = Annotated[str, StringConstraints(max_length=MAX_TEXT_CHARACTERS)]
Partition = Annotated[int, Field(ge=0, lt=1 << 31)]
PartitionKey = Annotated[int, Field(ge=0, lt=1 << 31, strict=False)]
"""A partition as the name of a member, which is text in JSON."""
Offset = Annotated[int, Field(ge=0, lt=1 << 62)]
TimeMs = Annotated[int, Field(ge=0, le=MAX_TIME_MS)]

TopicPath = Annotated[
    str,
    Path(description="Name of the topic.", max_length=MAX_TOPIC_CHARACTERS, json_schema_extra=_TOPIC_PATTERN),
]
QueuePath = Annotated[str, Path(description="Name of the queue.", max_length=MAX_NAME_CHARACTERS)]
GroupPath = Annotated[str, Path(description="Name of the group.", max_length=MAX_NAME_CHARACTERS)]
Pattern = Annotated[
    str,
    Query(
        description="Only names that match: `*` matches any characters, `?` a single one.",
        max_length=MAX_NAME_CHARACTERS,
    ),
]

ConfigValue = Annotated[str, StringConstraints(max_length=MAX_TEXT_CHARACTERS)] | bool | int | float
Config = Annotated[dict[Name, ConfigValue], Field(max_length=MAX_ENTRIES)]
"""Settings of a topic by name; numbers and booleans are written as Kafka writes them."""
Policy = Annotated[dict[Name, Any], Field(max_length=MAX_ENTRIES)]
TopicNames = Annotated[list[TopicName], Field(max_length=MAX_ENTRIES)]
Names = Annotated[list[Name], Field(max_length=MAX_ENTRIES)]


class Body(BaseModel):
    """A JSON object that a client sends. Types are strict: `"3"` is not a number."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Shown(BaseModel):
    """A JSON object that a client gets. For the document only; responses are made without it."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)


def config_texts(config: dict[str, str | bool | int | float]) -> dict[str, str]:
    """Return settings as Kafka writes them."""
    return {
        name: value
        if isinstance(value, str)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
        for name, value in config.items()
    }
