"""Routes of groups of all kinds: members, offsets and lag; reset and delete."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct, field

from sparrow.base.errors import DuplicateResource
from sparrow.frontends.http.arguments import CONFLICTING, operation
from sparrow.frontends.http.fields import Body, MaybeName, Offset, Partition, TopicName
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.start_position import START_POSITION_TEXT, parse_start_position
from sparrow.model.groups import GroupDescription, GroupListing

if TYPE_CHECKING:
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.request import Request
    from sparrow.frontends.http.router import Route

_MAX_OFFSETS: Final = 10_000
_TopicPartition = Annotated[
    list[str | int], Meta(min_length=2, max_length=2, description="Topic and partition.")
]


class GroupList(Struct):
    groups: list[GroupListing]


class CommittedShown(Struct):
    topic: str
    partition: int
    offset: int
    metadata: str


class CommittedList(Struct):
    offsets: list[CommittedShown]


class GroupPlaceShown(Struct):
    topic: str
    partition: int
    offset: int


class PlaceList(Struct):
    offsets: list[GroupPlaceShown]


class OffsetsOf(Struct):
    topic: Annotated[MaybeName, Meta(description="Only this topic.")] = ""


class Committed(Body):
    topic: TopicName
    partition: Partition
    offset: Offset
    metadata: Annotated[str, Meta(max_length=100_000)] = ""


class Commits(Body):
    offsets: Annotated[list[Committed], Meta(max_length=_MAX_OFFSETS)]


class Reset(Body):
    topic: TopicName
    to: Annotated[str | int, Meta(description=f"New position: {START_POSITION_TEXT}")]
    partitions: Annotated[
        list[Partition], Meta(max_length=_MAX_OFFSETS, description="Only these; empty: all.")
    ] = field(default_factory=list)


class _Groups:
    def __init__(self, frontend: HttpContext) -> None:
        self._broker = frontend.broker

    async def list_groups(self, request: Request) -> object:
        """List the groups that you may describe. Share groups are listed as queues, too."""
        found = self._broker.groups.listing(principal=caller(request))
        return {"groups": found}

    async def describe(self, request: Request, group: str) -> object:
        """Describe a group: its members, offsets and lag."""
        return await self._broker.groups.report(group, principal=caller(request))

    async def delete(self, request: Request, group: str) -> None:
        """Delete a group without members, and its offsets."""
        await self._broker.groups.delete(group, principal=caller(request))

    async def offsets(self, request: Request, group: str, by: OffsetsOf) -> object:
        """Return the committed offsets of a group."""
        topics = [by.topic] if by.topic else []
        found = self._broker.groups.fetch_offsets(group, topics, principal=caller(request))
        return {"offsets": found}

    async def commit(self, request: Request, group: str, body: Commits) -> None:
        """Commit offsets for a group without members. They are on stable storage when the response
        arrives.
        """
        offsets = {(each.topic, each.partition): (each.offset, each.metadata) for each in body.offsets}
        if len(offsets) < len(body.offsets):
            raise DuplicateResource("a partition is named twice; name each once")
        await self._broker.groups.commit_offsets(group, offsets, principal=caller(request))

    async def reset(self, request: Request, group: str, body: Reset) -> object:
        """Set the offsets of a group without members in a topic, and return them."""
        start = parse_start_position(str(body.to))
        moved = await self._broker.groups.reset(
            group, body.topic, start.at, start.value, body.partitions, principal=caller(request)
        )
        return {"offsets": [{"topic": t, "partition": p, "offset": o} for t, p, o in moved]}


def routes(frontend: HttpContext) -> list[Route]:
    """Return the routes of groups."""
    groups = _Groups(frontend)
    serve = partial(operation, tag="groups")
    one = "/v1/groups/{group}"
    return [
        serve("GET", "/v1/groups", groups.list_groups, GroupList, refusals=()),
        serve("GET", one, groups.describe, GroupDescription),
        serve("DELETE", one, groups.delete, status=204, refusals=CONFLICTING),
        serve("GET", f"{one}/offsets", groups.offsets, CommittedList, query=OffsetsOf),
        serve("PUT", f"{one}/offsets", groups.commit, body=Commits, status=204, refusals=CONFLICTING),
        serve("POST", f"{one}/reset", groups.reset, PlaceList, body=Reset, refusals=CONFLICTING),
    ]
