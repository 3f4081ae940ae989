"""Operations on queues, except those on their messages, subscribers and dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct, field
from msgspec.structs import asdict

from sparrow.base.queue_policy import SETTINGS
from sparrow.broker.queues.peek import size_of
from sparrow.frontends.admin.fields import Body, Name, Names, Policy, TopicNames
from sparrow.frontends.admin.operation import Arguments, Matching, Named, OperationContext
from sparrow.model.queues import QueueDescription

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparrow.model.queues import PeekedRecord

_RECORD_OVERHEAD_BYTES = 256
"""Approximate size of a peeked record besides its key, value and headers."""
_PARTITIONS = Annotated[
    int,
    Meta(ge=-1, le=1_000_000, description="Partitions of topics that are created; -1: the broker's default."),
]
_TOPICS = Annotated[
    TopicNames, Meta(description="Topics whose messages the queue delivers; missing ones are created.")
]
_POLICY = Annotated[
    Policy, Meta(description="Settings by name; those that are left out have their defaults.")
]


class CreateQueue(Arguments, frozen=True):
    name: str
    topics: list[str] = field(default_factory=list)
    policy: dict[str, Any] = field(default_factory=dict)
    partitions: int = -1


class ConfigureQueue(Arguments, frozen=True):
    name: str
    set: dict[str, Any] = field(default_factory=dict)
    unset: list[str] = field(default_factory=list)


class PeekQueue(Arguments, frozen=True):
    name: str
    max_records: int = 10
    states: tuple[str, ...] = ("ready", "leased", "delayed", "blocked")
    subscriber: str = ""
    skip: int = 0


class QueueMade(Body):
    topics: Annotated[_TOPICS, Meta(description="Empty: the topic with the queue's name.")] = field(
        default_factory=list
    )
    policy: _POLICY = field(default_factory=dict)
    partitions: _PARTITIONS = -1


class NewQueue(QueueMade, kw_only=True):
    name: Name


class QueueSettings(Body):
    set: Policy = field(default_factory=dict)
    unset: Annotated[Names, Meta(description="Settings to reset to their defaults.")] = field(
        default_factory=list
    )


class QueueList(Struct):
    queues: list[QueueDescription]


class Purged(Struct):
    purged: int


async def list_queues(context: OperationContext, a: Matching) -> QueueList:
    """List the queues whose names match and that you may describe, with their statistics."""
    return QueueList(await context.broker.queues.listing_in_steps(a.pattern, principal=context.principal))


async def create(context: OperationContext, a: CreateQueue) -> QueueDescription:
    """Create a queue. A queue that exists with the same topics and policy stays as it is."""
    return await context.broker.queues.create(
        a.name, tuple(a.topics), a.policy, partitions=a.partitions, principal=context.principal
    )


async def ensure(context: OperationContext, a: CreateQueue) -> QueueDescription:
    """Create a queue, or change those settings of an existing one that differ."""
    return await context.broker.queues.ensure(
        a.name, tuple(a.topics), a.policy, partitions=a.partitions, principal=context.principal
    )


class QueueSetting(Struct):
    name: str
    word: Annotated[str, Meta(description="Its option of `sparrow queue configure`.")]
    value: Annotated[str, Meta(description="As people write it.")]
    default: str
    help: str


class QueueShown(QueueDescription, frozen=True):
    """A queue, with its settings as people write them."""

    settings: list[QueueSetting] = field(default_factory=list)


def queue_shown(found: QueueDescription, _: Named) -> QueueShown:
    """Return a queue as HTTP shows it."""
    settings = [
        QueueSetting(each.name, each.word, each.show(value), each.show(each.default), each.help)
        for name, value in found.policy.items()
        if (each := SETTINGS.get(name)) is not None
    ]
    return QueueShown(**asdict(found), settings=settings)


async def describe(context: OperationContext, a: Named) -> QueueDescription:
    """Describe a queue: its policy and statistics."""
    return context.broker.queues.describe(a.name, principal=context.principal)


async def configure(context: OperationContext, a: ConfigureQueue) -> QueueDescription:
    """Change settings of the policy. They apply to everything from now on."""
    return await context.broker.queues.configure(a.name, a.set, a.unset, principal=context.principal)


async def delete(context: OperationContext, a: Named) -> None:
    """Delete a queue and the state of its messages. The messages stay in their topics."""
    await context.broker.queues.delete(a.name, principal=context.principal)


async def pause(context: OperationContext, a: Named) -> None:
    """Stop deliveries until `resume`. Leased messages can still be settled."""
    await context.broker.queues.pause(a.name, principal=context.principal)


async def resume(context: OperationContext, a: Named) -> None:
    """Resume deliveries after `pause`."""
    await context.broker.queues.resume(a.name, principal=context.principal)


async def purge(context: OperationContext, a: Named) -> Purged:
    """Finish all messages that are not leased now, and return how many."""
    return Purged(await context.broker.queues.purge(a.name, principal=context.principal))


async def peek(context: OperationContext, a: PeekQueue) -> dict[str, list[PeekedRecord]]:
    """Browse messages in their current state. Nothing changes."""
    found = await context.broker.queues.peek(
        a.name,
        a.max_records,
        states=a.states,
        subscriber=a.subscriber,
        skip=a.skip,
        max_bytes=context.max_response_bytes,
        principal=context.principal,
    )
    return {"records": _within(context.max_response_bytes, found)}


def _within(limit_bytes: int, found: Iterable[PeekedRecord]) -> list[PeekedRecord]:
    """Return the first records that together are not larger than `limit_bytes`, but at least
    one.
    """
    records: list[PeekedRecord] = []
    for peeked in found:
        limit_bytes -= _RECORD_OVERHEAD_BYTES + size_of(peeked)
        if records and limit_bytes < 0:
            break
        records.append(peeked)
    return records


PUT_TEXT = """\
Create a queue if it does not exist. One that exists with other topics or another policy
is a conflict."""
