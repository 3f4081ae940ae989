"""The verbs of REQUEST: one table from verb to arguments and handler.

A handler gets checked arguments, calls one verb of the broker, and renders what comes back as plain maps and lists. The shapes
stand in `docs/protocol.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from sparrow.base.errors import InvalidArgument
from sparrow.base.version import version

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparrow.broker.authz import Principal
    from sparrow.broker.broker import Broker
    from sparrow.broker.topics import TopicInfo
    from sparrow.frontends.native.frontend import NativeFrontend
    from sparrow.protocol.native.messages import Request


class Caller(NamedTuple):
    """Who calls, and where."""

    frontend: NativeFrontend
    principal: Principal

    @property
    def broker(self) -> Broker:
        return self.frontend.broker


async def call(frontend: NativeFrontend, principal: Principal, request: Request) -> Any:
    """The result of a call.

    Raises:
        InvalidArgument: there is no such verb, or its arguments are wrong.
        SparrowError: what the broker says.
    """
    verb = VERBS.get(request.verb)
    if verb is None:
        raise InvalidArgument(f"There is no verb {request.verb[:80]!r}; there are {', '.join(VERBS)}.")
    try:
        arguments = msgspec.convert(request.arguments, verb.arguments)
    except (msgspec.ValidationError, OverflowError) as error:
        raise InvalidArgument(f"The arguments of {request.verb} are wrong: {error}.") from None
    return await verb.handler(Caller(frontend, principal), arguments)


# ── arguments ─────────────────────────────────────────────────────────────────────────────────────


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """Base; fields that a verb does not know are ignored, as a newer client may send them."""


class NoArguments(Arguments, frozen=True):
    pass


class Named(Arguments, frozen=True):
    name: str


class CreateTopic(Arguments, frozen=True):
    name: str
    partitions: int = -1
    config: dict[str, str] = {}


class ListTopics(Arguments, frozen=True):
    pattern: str = "*"


class ConfigureTopic(Arguments, frozen=True):
    name: str
    set: dict[str, str] = {}
    unset: list[str] = []


class AddPartitions(Arguments, frozen=True):
    name: str
    total: int


class TopicOffsets(Arguments, frozen=True):
    name: str
    partition: int = -1
    at: str = "end"
    value: int = -1


class DeleteRecords(Arguments, frozen=True):
    name: str
    offsets: dict[int, int]


class GroupNamed(Arguments, frozen=True):
    group: str


class CommittedOffset(msgspec.Struct, array_like=True, frozen=True):
    topic: str
    partition: int
    offset: int
    metadata: str = ""


class CommitOffsets(Arguments, frozen=True):
    group: str
    offsets: list[CommittedOffset]


class GroupOffsets(Arguments, frozen=True):
    group: str
    topics: list[str] = []


class ResetGroup(Arguments, frozen=True):
    group: str
    topic: str
    at: str
    value: int = -1
    partitions: list[int] = []


# ── topics ────────────────────────────────────────────────────────────────────────────────────────


async def _create_topic(to: Caller, a: CreateTopic) -> Any:
    return _topic(await to.broker.create_topic(a.name, a.partitions, a.config, principal=to.principal))


async def _delete_topic(to: Caller, a: Named) -> Any:
    await to.broker.delete_topic(a.name, principal=to.principal)
    return {}


async def _describe_topic(to: Caller, a: Named) -> Any:
    return _topic(to.broker.describe_topic(a.name, principal=to.principal))


async def _list_topics(to: Caller, a: ListTopics) -> Any:
    return {"topics": [_topic(t) for t in to.broker.list_topics(a.pattern, principal=to.principal)]}


async def _configure_topic(to: Caller, a: ConfigureTopic) -> Any:
    return _topic(await to.broker.configure_topic(a.name, a.set, a.unset, principal=to.principal))


async def _add_partitions(to: Caller, a: AddPartitions) -> Any:
    return _topic(await to.broker.add_partitions(a.name, a.total, principal=to.principal))


async def _ensure_topic(to: Caller, a: Named) -> Any:
    return _topic(await to.broker.ensure_topic(a.name, principal=to.principal))


async def _topic_offsets(to: Caller, a: TopicOffsets) -> Any:
    return {"offsets": await to.broker.offsets(a.name, a.at, a.value, a.partition, principal=to.principal)}


async def _delete_records(to: Caller, a: DeleteRecords) -> Any:
    return {"starts": await to.broker.delete_records(a.name, a.offsets, principal=to.principal)}


def _topic(info: TopicInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "id": str(info.id),
        "partition_count": info.partition_count,
        "partitions": [msgspec.to_builtins(p) for p in info.partitions],
        "config": [msgspec.to_builtins(entry) for entry in info.config],
    }


# ── groups ────────────────────────────────────────────────────────────────────────────────────────


async def _list_groups(to: Caller, _: NoArguments) -> Any:
    return {"groups": [msgspec.to_builtins(g) for g in to.broker.list_groups(principal=to.principal)]}


async def _describe_group(to: Caller, a: GroupNamed) -> Any:
    return msgspec.to_builtins(to.broker.describe_group(a.group, principal=to.principal))


async def _commit_offsets(to: Caller, a: CommitOffsets) -> Any:
    offsets = {(o.topic, o.partition): (o.offset, o.metadata) for o in a.offsets}
    await to.broker.commit_offsets(a.group, offsets, principal=to.principal)
    return {}


async def _group_offsets(to: Caller, a: GroupOffsets) -> Any:
    found = to.broker.fetch_offsets(a.group, a.topics, principal=to.principal)
    return {"offsets": [[o.topic, o.partition, o.offset, o.metadata] for o in found]}


async def _reset_group(to: Caller, a: ResetGroup) -> Any:
    offsets = await to.broker.reset_group(
        a.group, a.topic, a.at, a.value, a.partitions, principal=to.principal
    )
    return {"offsets": offsets}


async def _delete_group(to: Caller, a: GroupNamed) -> Any:
    await to.broker.delete_group(a.group, principal=to.principal)
    return {}


# ── the broker ────────────────────────────────────────────────────────────────────────────────────


async def _describe_broker(to: Caller, _: NoArguments) -> Any:
    broker = to.broker
    return {
        **broker.statistics(),
        "version": version(),
        "cluster_id": broker.cluster_id,
        "uptime_ms": broker.clock.wall_ms() - broker.started_at_ms,
        "connections": to.frontend.connections,
    }


class Verb(NamedTuple):
    arguments: type[Arguments]
    handler: Callable[[Caller, Any], Awaitable[Any]]


VERBS: Final[dict[str, Verb]] = {
    "topic.create": Verb(CreateTopic, _create_topic),
    "topic.delete": Verb(Named, _delete_topic),
    "topic.describe": Verb(Named, _describe_topic),
    "topic.list": Verb(ListTopics, _list_topics),
    "topic.configure": Verb(ConfigureTopic, _configure_topic),
    "topic.add_partitions": Verb(AddPartitions, _add_partitions),
    "topic.ensure": Verb(Named, _ensure_topic),
    "topic.offsets": Verb(TopicOffsets, _topic_offsets),
    "topic.delete_records": Verb(DeleteRecords, _delete_records),
    "group.list": Verb(NoArguments, _list_groups),
    "group.describe": Verb(GroupNamed, _describe_group),
    "group.commit": Verb(CommitOffsets, _commit_offsets),
    "group.offsets": Verb(GroupOffsets, _group_offsets),
    "group.reset": Verb(ResetGroup, _reset_group),
    "group.delete": Verb(GroupNamed, _delete_group),
    "broker.describe": Verb(NoArguments, _describe_broker),
}
