"""Valid names of topics (Kafka's rules), and patterns over names."""

from __future__ import annotations

import fnmatch
import re
from functools import lru_cache

from sparrow.base.errors import InvalidArgument, InvalidTopicName

MAX_NAME_LENGTH = 249
MAX_ANY_NAME_LENGTH = 255
"""The limit of names other than those of topics."""
_ALLOWED = re.compile(r"[A-Za-z0-9._-]+")


def check_topic_name(name: str) -> str:
    """Return the name if it is valid.

    Raises:
        InvalidTopicName: empty, ".", "..", longer than 249, or with a character other than A-Z a-z
            0-9 . _ -.
    """
    if not name:
        raise InvalidTopicName("a topic needs a name")
    if name in (".", ".."):
        raise InvalidTopicName(f"a topic cannot be named {name!r}")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopicName(
            f"the topic name {name[:32]!r}… has {len(name)} characters; {MAX_NAME_LENGTH} are allowed"
        )
    if not _ALLOWED.fullmatch(name):
        raise InvalidTopicName(f"the topic name {name!r} may only have A-Z a-z 0-9 . _ and -")
    return name


def check_group_name(group: str) -> None:
    """Raise InvalidArgument if the name of a group or queue is empty or too long."""
    if not 0 < len(group) <= MAX_ANY_NAME_LENGTH or not group.isprintable():
        raise InvalidArgument(
            f"{group[:40]!r} is no name of a group or queue: it must have 1 to "
            f"{MAX_ANY_NAME_LENGTH} printable characters."
        )


def plain_name(name: str) -> str:
    """Return the name as metrics write it. Two topics whose names differ only in . and _ would be
    one there, so Kafka does not allow both (KAFKA-2337).
    """
    return name.replace(".", "_")


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Return a compiled pattern over topic names: `*` matches any run of characters, `?` one,
    everything else itself.

    Raises:
        InvalidTopicName: a character that no topic name has.
    """
    if len(pattern) > MAX_NAME_LENGTH or not _ALLOWED.fullmatch(pattern.replace("*", "a").replace("?", "a")):
        raise InvalidTopicName(
            f"the pattern {pattern[:64]!r} may only have A-Z a-z 0-9 . _ - * and ?, {MAX_NAME_LENGTH} at most"
        )
    return _compiled(pattern)


def compile_any_pattern(pattern: str) -> re.Pattern[str]:
    """Return a compiled pattern over names with any characters, as queues and groups have.

    Raises:
        InvalidArgument: it is longer than any name.
    """
    if len(pattern) > MAX_ANY_NAME_LENGTH:
        raise InvalidArgument(
            f"the pattern {pattern[:40]!r}… has {len(pattern)} characters; {MAX_ANY_NAME_LENGTH} are allowed"
        )
    return _compiled(pattern)


def _compiled(pattern: str) -> re.Pattern[str]:
    # fnmatch writes each star as an atomic group, so no pattern can make the match explode.
    return re.compile(fnmatch.translate(pattern.replace("[", "[[]")))
