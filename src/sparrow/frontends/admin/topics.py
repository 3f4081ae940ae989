"""Operations on topics."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta, Struct, field

from sparrow.frontends.admin.fields import (
    MAX_ENTRIES,
    Body,
    Config,
    Names,
    Partition,
    TopicName,
    config_texts,
)
from sparrow.frontends.admin.operation import Arguments, Matching, Named, OperationContext, OtherStatus
from sparrow.frontends.start_position import START_POSITION_TEXT, parse_start_position
from sparrow.model.topics import TopicDescription, TopicListing

_ALL_PARTITIONS: Final = -1


class CreateTopic(Arguments, frozen=True):
    name: str
    partitions: int = -1
    config: dict[str, str] = field(default_factory=dict)
    validate_only: bool = False


class ConfigureTopic(Arguments, frozen=True):
    name: str
    set: dict[str, str] = field(default_factory=dict)
    unset: list[str] = field(default_factory=list)


class AddPartitions(Arguments, frozen=True):
    name: str
    total: int


class TopicOffsets(Arguments, frozen=True):
    name: str
    partition: int = _ALL_PARTITIONS
    at: str = "end"
    value: int = -1


class DeleteRecords(Arguments, frozen=True):
    name: str
    offsets: dict[int, int]


class SkipBatch(Arguments, frozen=True):
    name: str
    partition: int
    offset: int
    force: bool = False


class NewTopic(Body):
    name: TopicName
    partitions: Annotated[int, Meta(ge=-1, le=1_000_000, description="-1: the broker's default.")] = -1
    config: Annotated[Config, Meta(description="Settings by Kafka's names, such as retention.ms.")] = field(
        default_factory=dict
    )
    validate_only: Annotated[bool, Meta(description="Only check that it could be created.")] = False


class TopicSettings(Body):
    set: Config = field(default_factory=dict)
    unset: Annotated[Names, Meta(description="Settings to reset to their defaults.")] = field(
        default_factory=list
    )


class Growth(Body):
    total: Annotated[int, Meta(ge=1, le=1_000_000, description="New number of partitions.")]


class Truncation(Body):
    before: Annotated[
        dict[Partition, Annotated[int, Meta(ge=-1, lt=1 << 62)]],
        Meta(
            max_length=MAX_ENTRIES * 100,
            description="Partition → offset: records before it are deleted. -1: all records.",
        ),
    ]


class OffsetsQuery(Struct):
    at: Annotated[str, Meta(description=START_POSITION_TEXT, max_length=100)] = "end"
    partition: Annotated[int, Meta(ge=_ALL_PARTITIONS, lt=1 << 31, description="-1: all.")] = _ALL_PARTITIONS


class TopicList(Struct):
    topics: list[TopicListing]


class TopicPlaceShown(Struct):
    partition: int
    offset: int
    timestamp_ms: int


class OffsetList(Struct):
    offsets: list[TopicPlaceShown]


class Starts(Struct):
    starts: dict[str, int]


async def list_topics(context: OperationContext, a: Matching) -> dict[str, list[TopicDescription]]:
    """List the topics whose names match and that you may describe."""
    return {"topics": await context.broker.topics.listing_in_steps(a.pattern, principal=context.principal)}


async def create(context: OperationContext, a: CreateTopic) -> TopicDescription:
    """Create a topic. It is on stable storage when the response arrives."""
    return await context.broker.topics.create(
        a.name,
        a.partitions,
        config_texts(a.config),
        validate_only=a.validate_only,
        principal=context.principal,
    )


async def describe(context: OperationContext, a: Named) -> TopicDescription:
    """Describe a topic: its partitions, and its settings if you may see those."""
    await context.broker.topics.open(a.name, principal=context.principal)
    return context.broker.topics.describe(a.name, principal=context.principal)


async def ensure(context: OperationContext, a: Named) -> TopicDescription:
    """Return a topic; create it if it is missing and the broker's policy allows."""
    return await context.broker.topics.ensure(a.name, principal=context.principal)


async def configure(context: OperationContext, a: ConfigureTopic) -> TopicDescription:
    """Change settings. They apply immediately."""
    return await context.broker.topics.configure(
        a.name, config_texts(a.set), a.unset, principal=context.principal
    )


async def delete(context: OperationContext, a: Named) -> None:
    """Delete a topic, its records, and the offsets that groups have committed for it."""
    await context.broker.topics.delete(a.name, principal=context.principal)


async def add_partitions(context: OperationContext, a: AddPartitions) -> TopicDescription:
    """Add partitions to a topic. Keys go to other partitions from then on."""
    return await context.broker.topics.add_partitions(a.name, a.total, principal=context.principal)


async def truncate(context: OperationContext, a: DeleteRecords) -> dict[str, dict[int, int]]:
    """Delete the oldest records, and return the first offset of each partition."""
    starts = await context.broker.topics.delete_records(a.name, a.offsets, principal=context.principal)
    return {"starts": starts}


async def skip_batch(context: OperationContext, a: SkipBatch) -> Any:
    """Remove the records of a batch that cannot be read, for every reader."""
    removed = await context.broker.topics.skip_batch(
        a.name, a.partition, a.offset, force=a.force, principal=context.principal
    )
    return {"removed": removed}


async def offsets(context: OperationContext, a: TopicOffsets) -> dict[str, list[tuple[int, int, int]]]:
    """Look up a start position in each partition; the offset is -1 where no record is that
    late.
    """
    found = await context.broker.records.offsets(
        a.name, a.at, a.value, a.partition, principal=context.principal
    )
    return {"offsets": found}


def listed(found: dict[str, list[TopicDescription]], _: Matching) -> TopicList:
    """Return topics as HTTP lists them."""
    return TopicList([TopicListing(each.name, each.id, each.partition_count) for each in found["topics"]])


def offsets_shown(found: dict[str, list[tuple[int, int, int]]], _: TopicOffsets) -> OffsetList:
    """Return offsets as HTTP shows them."""
    return OffsetList([TopicPlaceShown(*each) for each in found["offsets"]])


def position(_: OperationContext, topic: str, by: OffsetsQuery) -> TopicOffsets:
    """Return the arguments of `offsets`.

    Raises:
        InvalidArgument: the text is not a start position.
    """
    start = parse_start_position(by.at, offsets=False)
    return TopicOffsets(topic, by.partition, start.at, start.value)


def truncation(_: OperationContext, topic: str, body: Truncation) -> DeleteRecords:
    """Return the arguments of `truncate`."""
    return DeleteRecords(topic, body.before)


ONLY_VALIDATED: Final = OtherStatus(200, "It could be created (`validate_only`).", lambda a: a.validate_only)
