"""The verbs of REQUEST: one table from verb to arguments and handler.

A handler gets checked arguments, calls one verb of the broker, and renders what comes back as plain maps and lists. The shapes
stand in `docs/protocol.md`. The verbs of queues are in `queue_calls.py`, those of readers by offset in `watch_calls.py`.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sparrow.base.errors import InvalidArgument, SparrowError
from sparrow.base.version import version
from sparrow.broker.access.acls import ANY_HOST, AclBinding, AclFilter, PatternType, Permission, check_rule
from sparrow.broker.access.authz import Operation, ResourceType
from sparrow.broker.access.credentials import Upsertion
from sparrow.broker.quotas.rules import QuotaChange
from sparrow.frontends.native import pipeline_calls, queue_calls, sink_calls, watch_calls, webhook_calls
from sparrow.frontends.native.verbs import Arguments, Caller, Matching, Named, NoArguments, Verb

if TYPE_CHECKING:
    from sparrow.broker.access.authz import Principal
    from sparrow.broker.topics import TopicInfo
    from sparrow.frontends.native.frontend import NativeFrontend
    from sparrow.protocol.native.messages import Request


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
    measures, begun = frontend.measures, perf_counter()
    try:
        return await verb.handler(Caller(frontend, principal), arguments)
    except SparrowError:
        measures.failed(request.verb)
        raise
    finally:
        measures.observe(request.verb, perf_counter() - begun)


# ── arguments ─────────────────────────────────────────────────────────────────────────────────────


class CreateTopic(Arguments, frozen=True):
    name: str
    partitions: int = -1
    config: dict[str, str] = msgspec.field(default_factory=dict)


class ConfigureTopic(Arguments, frozen=True):
    name: str
    set: dict[str, str] = msgspec.field(default_factory=dict)
    unset: list[str] = msgspec.field(default_factory=list)


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


class SaltedPassword(msgspec.Struct, array_like=True, frozen=True):
    """A password as RFC 5802 hashes it: Hi(password, salt, iterations)."""

    mechanism: str
    iterations: int
    salt: bytes
    salted_password: bytes


class SetUser(Arguments, frozen=True):
    name: str
    credentials: list[SaltedPassword]


class Rule(msgspec.Struct, frozen=True):
    """An access rule, in Kafka's words."""

    resource_type: ResourceType
    name: str
    principal: str
    operation: Operation
    permission: Permission = Permission.ALLOW
    pattern_type: PatternType = PatternType.LITERAL
    host: str = ANY_HOST


class CreateRules(Arguments, frozen=True):
    rules: list[Rule]


class SelectRules(Arguments, frozen=True):
    """A filter; what is left out selects all."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    principal: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY
    pattern_type: PatternType = PatternType.ANY
    host: str | None = None


class AlterQuota(Arguments, frozen=True):
    """`entity`: type ("user", "client-id", "ip") → name, null for the default. `values`: null removes."""

    entity: dict[str, str | None]
    values: dict[str, float | None]


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
    topics: list[str] = msgspec.field(default_factory=list)


class ResetGroup(Arguments, frozen=True):
    group: str
    topic: str
    at: str
    value: int = -1
    partitions: list[int] = msgspec.field(default_factory=list)


# ── topics ────────────────────────────────────────────────────────────────────────────────────────


async def _create_topic(to: Caller, a: CreateTopic) -> Any:
    return _topic(await to.broker.create_topic(a.name, a.partitions, a.config, principal=to.principal))


async def _delete_topic(to: Caller, a: Named) -> Any:
    await to.broker.delete_topic(a.name, principal=to.principal)
    return {}


async def _describe_topic(to: Caller, a: Named) -> Any:
    return _topic(to.broker.describe_topic(a.name, principal=to.principal))


async def _list_topics(to: Caller, a: Matching) -> Any:
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
    return msgspec.to_builtins(await to.broker.report_group(a.group, principal=to.principal))


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


# ── users ─────────────────────────────────────────────────────────────────────────────────────────


async def _list_users(to: Caller, _: NoArguments) -> Any:
    found = to.broker.users.listing(principal=to.principal)
    return {"users": [{"name": user.name, "credentials": user.credentials} for user in found]}


async def _create_user(to: Caller, a: SetUser) -> Any:
    await to.broker.users.create(_upsertions(a), principal=to.principal)
    return {}


async def _set_password(to: Caller, a: SetUser) -> Any:
    await to.broker.users.set_password(_upsertions(a), principal=to.principal)
    return {}


async def _delete_user(to: Caller, a: Named) -> Any:
    await to.broker.users.delete(a.name, principal=to.principal)
    return {}


def _upsertions(a: SetUser) -> list[Upsertion]:
    return [Upsertion(a.name, c.mechanism, c.iterations, c.salt, c.salted_password) for c in a.credentials]


# ── access rules ──────────────────────────────────────────────────────────────────────────────────


async def _create_rules(to: Caller, a: CreateRules) -> Any:
    """All or none: what cannot be a rule is found before the first is made."""
    rules = [AclBinding(**msgspec.structs.asdict(rule)) for rule in a.rules]
    for rule in rules:
        check_rule(rule)
    for outcome in await to.broker.acls.create(rules, principal=to.principal):
        if outcome is not None:
            raise outcome
    return {}


async def _list_rules(to: Caller, a: SelectRules) -> Any:
    found = to.broker.acls.describe(_rule_filter(a), principal=to.principal)
    return {"rules": [msgspec.to_builtins(rule) for rule in found]}


async def _delete_rules(to: Caller, a: SelectRules) -> Any:
    (deleted,) = await to.broker.acls.delete([_rule_filter(a)], principal=to.principal)
    return {"rules": [msgspec.to_builtins(rule) for rule in deleted]}


def _rule_filter(a: SelectRules) -> AclFilter:
    return AclFilter(**msgspec.structs.asdict(a))


# ── quotas ────────────────────────────────────────────────────────────────────────────────────────


async def _alter_quota(to: Caller, a: AlterQuota) -> Any:
    change = QuotaChange(tuple(a.entity.items()), tuple(a.values.items()))
    (refused,) = await to.broker.quotas.alter([change], principal=to.principal)
    if refused is not None:
        raise refused
    return {}


async def _list_quotas(to: Caller, _: NoArguments) -> Any:
    found = to.broker.quotas.describe([], principal=to.principal)
    return {"quotas": [{"entity": dict(entity), "values": values} for entity, values in found]}


# ── the broker ────────────────────────────────────────────────────────────────────────────────────


async def _describe_broker(to: Caller, _: NoArguments) -> Any:
    broker = to.broker
    return {
        **broker.statistics(principal=to.principal),
        "version": version(),
        "cluster_id": broker.cluster_id,
        "uptime_ms": broker.clock.wall_ms() - broker.started_at_ms,
        "connections": to.frontend.connections,
    }


VERBS: Final[dict[str, Verb]] = {
    "topic.create": Verb(CreateTopic, _create_topic),
    "topic.delete": Verb(Named, _delete_topic),
    "topic.describe": Verb(Named, _describe_topic),
    "topic.list": Verb(Matching, _list_topics),
    "topic.configure": Verb(ConfigureTopic, _configure_topic),
    "topic.add_partitions": Verb(AddPartitions, _add_partitions),
    "topic.ensure": Verb(Named, _ensure_topic),
    "topic.offsets": Verb(TopicOffsets, _topic_offsets),
    "topic.delete_records": Verb(DeleteRecords, _delete_records),
    **watch_calls.VERBS,
    "group.list": Verb(NoArguments, _list_groups),
    "group.describe": Verb(GroupNamed, _describe_group),
    "group.commit": Verb(CommitOffsets, _commit_offsets),
    "group.offsets": Verb(GroupOffsets, _group_offsets),
    "group.reset": Verb(ResetGroup, _reset_group),
    "group.delete": Verb(GroupNamed, _delete_group),
    "user.list": Verb(NoArguments, _list_users),
    "user.create": Verb(SetUser, _create_user),
    "user.password": Verb(SetUser, _set_password),
    "user.delete": Verb(Named, _delete_user),
    "acl.create": Verb(CreateRules, _create_rules),
    "acl.list": Verb(SelectRules, _list_rules),
    "acl.delete": Verb(SelectRules, _delete_rules),
    "quota.alter": Verb(AlterQuota, _alter_quota),
    "quota.list": Verb(NoArguments, _list_quotas),
    **queue_calls.VERBS,
    **webhook_calls.VERBS,
    **sink_calls.VERBS,
    **pipeline_calls.VERBS,
    "broker.describe": Verb(NoArguments, _describe_broker),
}
