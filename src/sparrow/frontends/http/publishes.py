"""Requests that publish to a topic, or to the topic of a queue."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from sparrow.broker.publishes import ACKS_ALL
from sparrow.broker.quotas.rules import QuotaKind
from sparrow.frontends.http.idempotency import REPLAYED, maybe_key
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.queries import Choice, Flag, Query, WholeNumber
from sparrow.frontends.http.records import messages_of, publish_response
from sparrow.frontends.http.responses import wait_for_quota

if TYPE_CHECKING:
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.request import Request
    from sparrow.frontends.http.responses import Response

_ACKS: Final = {"all": ACKS_ALL, "leader": 1, "none": 0}
ACKS: Final = Choice(
    "acks",
    "`all`: the response comes when the messages are on stable storage. `leader`: when the broker "
    "has them. `none`: the same, with status 202.",
    tuple(_ACKS),
)
PARTITION: Final = WholeNumber(
    "partition", "Publish to this partition, regardless of keys.", -1, 0, (1 << 31) - 1
)
RAW: Final = Flag("raw", "The body is one message, regardless of its content type.")
_ACCEPTED: Final = 202
LARGE_BYTES: Final = 64 << 10
"""Larger bodies are parsed in a thread."""


async def publish(frontend: HttpContext, request: Request, topic: str = "") -> Response:
    """Publish the messages of a request to a topic, and return their offsets. The default topic is
    that of the path.

    Raises:
        what `IdempotentPublisher.publish` and `messages_of` raise
    """
    query = Query(request)
    acks = query.choice(ACKS)
    partition = query.integer(PARTITION)
    is_raw = query.flag(RAW)
    query.refuse_others()
    body = await request.body()
    await wait_for_quota(request, frontend, QuotaKind.PRODUCE)
    principal = caller(request)
    read = partial(
        messages_of,
        body,
        request.header(b"content-type"),
        request.headers,
        limits=frontend.limits,
        now_ms=frontend.broker.clock.wall_ms(),
        raw=is_raw,
    )
    published = read() if len(body) <= LARGE_BYTES else await asyncio.to_thread(read)
    topic = topic or request.path_params["topic"]
    key = maybe_key(request, body)
    messages, level = published.messages, _ACKS[acks]
    is_replay = False
    if key is None:
        results = await frontend.publisher.publish(
            topic, messages, partition=partition, acks=level, principal=principal
        )
    else:
        results, is_replay = await frontend.once.publish(
            key, topic, messages, partition=partition, acks=level, principal=principal
        )
    if not is_replay:
        frontend.count(QuotaKind.PRODUCE, principal, len(body))
    return publish_response(
        results,
        published,
        request.path,
        status=_ACCEPTED if acks == "none" else 200,
        headers=dict([REPLAYED]) if is_replay else None,
    )
