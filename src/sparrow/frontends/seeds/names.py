"""Topic names for the names that clients of seeds use.

Those systems accept any text as a name (the example of one of them is "topic a"); topics have
Kafka's characters. A valid topic name stays as it is. Otherwise invalid characters are replaced,
and the first digits of the SHA-256 make the name unique: "topic a" is `topic-a.b5fe90f94f`.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final

from sparrow.base.errors import InvalidTopicName
from sparrow.broker.names import check_topic_name

_OTHER: Final = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_KEPT: Final = 100
_DIGITS: Final = 10
MAX_PLAIN: Final = 235
"""Longer names are shortened, too, because names of queues and dead-letter topics are made by
adding a suffix.
"""


def topic_of(name: bytes) -> str:
    """Return the topic of a client's name.

    Raises:
        InvalidTopicName: the name is empty.
    """
    return _known(name) if len(name) <= MAX_PLAIN else _topic_of(name)


def _topic_of(name: bytes) -> str:
    if not name:
        raise InvalidTopicName("a topic needs a name; the client gave none")
    text = name.decode(errors="replace")
    try:
        if len(text) <= MAX_PLAIN:
            return check_topic_name(text)
    except InvalidTopicName:
        pass  # make a valid name from it
    kept = _OTHER.sub("-", text)[:_MAX_KEPT].strip(".-") or "topic"
    return f"{kept}.{hashlib.sha256(name).hexdigest()[:_DIGITS]}"


_known = lru_cache(maxsize=4096)(_topic_of)
"""Long names are not cached: they have up to 64 KiB, and many of them would fill the memory."""
