"""What a topic is called whose name comes from a seed's client.

Those systems take any text for a name (the example of one of them is "topic a"); a topic has Kafka's characters. A name that a topic can have stays as
it is. Of another one the characters that are allowed are kept, and the beginning of its SHA-256 makes it unique: "topic a" is `topic-a.b5fe90f94f`.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final

from sparrow.base.errors import InvalidTopicName
from sparrow.broker.topic_names import check_topic_name

_OTHER: Final = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_KEPT: Final = 100
_DIGITS: Final = 10
MAX_PLAIN: Final = 235
"""A name of more characters is made shorter, too: the names of queues and dead-letter topics are made of it by adding to it."""


def topic_of(name: bytes) -> str:
    """The topic that a client's name means.

    Raises:
        InvalidTopicName: the client gave no name.
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
        pass  # one is made of it
    kept = _OTHER.sub("-", text)[:_MAX_KEPT].strip(".-") or "topic"
    return f"{kept}.{hashlib.sha256(name).hexdigest()[:_DIGITS]}"


_known = lru_cache(maxsize=4096)(_topic_of)
"""Not of long names: they are up to 64 KiB, and whoever gives many could fill the memory."""
