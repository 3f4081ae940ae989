"""Headers of requests, and the target of a reply.

    reply-to        the topic for the reply
    correlation-id  the name of the request among those of its client; the reply has it, too

A worker replies only to topics whose name begins with `replies.`: otherwise the sender of a request
could have it write to any topic that the worker may write to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparrow.base.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

REPLY_TO: Final = "reply-to"
CORRELATION_ID: Final = "correlation-id"
PREFIX: Final = "replies."


def reply_target(headers: Sequence[tuple[str, bytes | None]]) -> tuple[str, list[tuple[str, bytes | None]]]:
    """Return the topic for the reply to a message with these headers, and the headers of the reply.

    Raises:
        InvalidArgument: the message asks for no reply, or for one on another kind of topic.
    """
    found = dict(headers)
    topic = (found.get(REPLY_TO) or b"").decode(errors="replace")
    if not topic:
        raise InvalidArgument(f"the job asks for no reply: its message has no header {REPLY_TO!r}")
    if not topic.startswith(PREFIX):
        raise InvalidArgument(
            f"the job asks for a reply on the topic {topic!r}; replies go to topics {PREFIX}… alone"
        )
    return topic, [(CORRELATION_ID, found.get(CORRELATION_ID))]
