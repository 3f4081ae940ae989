"""Publishing one message once for a text that the client chose, within a window.

It is the publish with an idempotency key (`frontends/idempotent_publisher.py`), with one
difference: the second message may be another one. It is not stored, and its publisher gets the
position of the first.
"""

from __future__ import annotations

from typing import Final

from sparrow.base.errors import InvalidArgument, SparrowError
from sparrow.base.units import format_duration
from sparrow.broker.idempotency.stored_publish import IdempotencyKey
from sparrow.frontends.admin.operation import Arguments, OperationContext
from sparrow.frontends.idempotent_publisher import IdempotentPublisher
from sparrow.frontends.publisher import Message, Publisher
from sparrow.model.topics import OncePublished

MAX_TEXT: Final = 500
_PREFIX: Final = "once:"
"""No key of HTTP contains a zero character, which follows it."""


class PublishOnce(Arguments, frozen=True):
    name: str
    once: str
    value: bytes | None = None
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] = []  # noqa: RUF012 - msgspec copies it
    window_ms: int = 0


async def publish(context: OperationContext, a: PublishOnce) -> OncePublished:
    """Publish a message, unless one with the same text `once` was published to the topic within
    the window. Return the position of the first one.
    """
    idempotency = context.broker.idempotency
    if not 0 < len(a.once) <= MAX_TEXT:
        raise InvalidArgument(f"once has {len(a.once)} characters; it must have 1 to {MAX_TEXT}")
    if not 0 <= a.window_ms <= idempotency.window_ms:
        raise InvalidArgument(
            f"the window is {format_duration(a.window_ms)}; this broker remembers for at most "
            f"{format_duration(idempotency.window_ms)} (http.idempotency_window)"
        )
    key = IdempotencyKey(
        str(context.principal), f"{_PREFIX}\0{a.name}\0{a.once}", _PREFIX.encode(), a.window_ms
    )
    message = Message(a.value, a.key, a.headers)
    publisher = IdempotentPublisher(context.broker, Publisher(context.broker))
    published = await publisher.publish(key, a.name, [message], principal=context.principal)
    (result,) = published.results
    if isinstance(result, SparrowError):
        raise result
    return OncePublished(result.partition, result.offset, result.timestamp_ms, published.is_replay)
