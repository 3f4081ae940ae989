"""Lists in pages, with the numbers that people look at: topics, queues, groups; readers of a
topic.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from sparrow.frontends.admin.fields import Listing
from sparrow.frontends.admin.operation import Arguments, Named, OperationContext
from sparrow.model.groups import GroupLag  # noqa: TC001 - msgspec reads it
from sparrow.model.queues import QueueDescription  # noqa: TC001 - msgspec reads it
from sparrow.model.topics import TopicOverview  # noqa: TC001 - msgspec reads it

MAX_LISTED = 500
_Limit = Annotated[int, Meta(ge=1, le=MAX_LISTED)]
_Skip = Annotated[int, Meta(ge=0, lt=1 << 31)]
_Total = Annotated[int, Meta(description="Number of all that match.")]


class ListPage(Arguments, frozen=True):
    """A page of a list by name."""

    pattern: str = "*"
    limit: int = 50
    skip: int = 0


class PageQuery(Listing):
    limit: _Limit = 50
    skip: _Skip = 0


class TopicPage(Struct):
    topics: list[TopicOverview]
    total: _Total


class QueuePage(Struct):
    queues: list[QueueDescription]
    total: _Total


class GroupPage(Struct):
    groups: list[GroupLag]
    total: _Total


class ReaderList(Struct):
    groups: list[GroupLag]
    queues: list[QueueDescription]


async def topics(context: OperationContext, a: ListPage) -> TopicPage:
    """List a page of topics with their sizes, and what was published and read since the start."""
    found, total = await context.broker.topics.overview(
        a.pattern, limit=a.limit, skip=a.skip, principal=context.principal
    )
    return TopicPage(found, total)


async def queues(context: OperationContext, a: ListPage) -> QueuePage:
    """List a page of queues with their statistics."""
    found, total = context.broker.queues.overview(
        a.pattern, limit=a.limit, skip=a.skip, principal=context.principal
    )
    return QueuePage(found, total)


async def groups(context: OperationContext, a: ListPage) -> GroupPage:
    """List a page of groups with their lag. Share groups are listed as queues."""
    found = context.broker.groups.lags(pattern=a.pattern, principal=context.principal)
    return GroupPage(found[a.skip : a.skip + a.limit], len(found))


async def readers(context: OperationContext, a: Named) -> ReaderList:
    """List the groups that have committed offsets of a topic, with their lag there, and its
    queues.
    """
    context.broker.topics.summary(a.name, principal=context.principal)
    return ReaderList(
        context.broker.groups.lags(a.name, principal=context.principal),
        context.broker.queues.readers_of(a.name, principal=context.principal),
    )
