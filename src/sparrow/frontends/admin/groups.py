"""Operations on groups of all kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct, field
from msgspec.structs import astuple

from sparrow.base.errors import DuplicateResource
from sparrow.frontends.admin.fields import Body, MaybeName, Offset, Partition, TopicName
from sparrow.frontends.admin.operation import Arguments, NoArguments, OperationContext
from sparrow.frontends.start_position import START_POSITION_TEXT, parse_start_position
from sparrow.model.groups import CommittedOffset, GroupDescription, GroupListing

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_OFFSETS: Final = 10_000


class GroupNamed(Arguments, frozen=True):
    group: str


class CommitOffsets(Arguments, frozen=True):
    group: str
    offsets: list[CommittedOffset]


class GroupOffsets(Arguments, frozen=True):
    group: str
    topics: list[str] = field(default_factory=list)


class ResetGroup(Arguments, frozen=True):
    group: str
    topic: str
    at: str
    value: int = -1
    partitions: list[int] = field(default_factory=list)


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


class GroupList(Struct):
    groups: list[GroupListing]


class GroupPlaceShown(Struct):
    topic: str
    partition: int
    offset: int


class CommittedShown(GroupPlaceShown):
    metadata: str


class CommittedList(Struct):
    offsets: list[CommittedShown]


class PlaceList(Struct):
    offsets: list[GroupPlaceShown]


async def list_groups(context: OperationContext, _: NoArguments) -> GroupList:
    """List the groups that you may describe. Share groups are listed as queues, too."""
    return GroupList(context.broker.groups.listing(principal=context.principal))


async def describe(context: OperationContext, a: GroupNamed) -> GroupDescription:
    """Describe a group: its members, offsets and lag."""
    return await context.broker.groups.report(a.group, principal=context.principal)


async def delete(context: OperationContext, a: GroupNamed) -> None:
    """Delete a group without members, and its offsets."""
    await context.broker.groups.delete(a.group, principal=context.principal)


async def offsets(context: OperationContext, a: GroupOffsets) -> dict[str, list[CommittedOffset]]:
    """Return the committed offsets of a group."""
    return {"offsets": context.broker.groups.fetch_offsets(a.group, a.topics, principal=context.principal)}


async def commit(context: OperationContext, a: CommitOffsets) -> None:
    """Commit offsets for a group without members. They are on stable storage when the response
    arrives.
    """
    committed = {(each.topic, each.partition): (each.offset, each.metadata) for each in a.offsets}
    await context.broker.groups.commit_offsets(a.group, committed, principal=context.principal)


async def reset(context: OperationContext, a: ResetGroup) -> dict[str, Sequence[tuple[str, int, int]]]:
    """Set the offsets of a group without members in a topic, and return them."""
    moved = await context.broker.groups.reset(
        a.group, a.topic, a.at, a.value, a.partitions, principal=context.principal
    )
    return {"offsets": moved}


def offsets_of(_: OperationContext, group: str, by: OffsetsOf) -> GroupOffsets:
    """Return the arguments of `offsets`."""
    return GroupOffsets(group, [by.topic] if by.topic else [])


def committed_shown(found: dict[str, list[CommittedOffset]], _: GroupOffsets) -> CommittedList:
    """Return committed offsets as HTTP shows them."""
    return CommittedList([CommittedShown(*astuple(each)) for each in found["offsets"]])


def commits(_: OperationContext, group: str, body: Commits) -> CommitOffsets:
    """Return the arguments of `commit`.

    Raises:
        DuplicateResource: a partition is named twice.
    """
    if len({(each.topic, each.partition) for each in body.offsets}) < len(body.offsets):
        raise DuplicateResource("a partition is named twice; name each once")
    return CommitOffsets(group, [CommittedOffset(*astuple(each)) for each in body.offsets])


def resetting(_: OperationContext, group: str, body: Reset) -> ResetGroup:
    """Return the arguments of `reset`.

    Raises:
        InvalidArgument: the text is not a start position.
    """
    start = parse_start_position(str(body.to))
    return ResetGroup(group, body.topic, start.at, start.value, body.partitions)


def reset_shown(moved: dict[str, Sequence[tuple[str, int, int]]], _: ResetGroup) -> PlaceList:
    """Return new offsets as HTTP shows them."""
    return PlaceList([GroupPlaceShown(*each) for each in moved["offsets"]])
