"""The handlers of REQUEST: one table from the verb to the type of its arguments and its handler.

A handler receives checked arguments, calls one operation of the broker, and renders the result as
plain maps and lists. `docs/protocol.md` describes their shapes. Other tables are in
`*_requests.py`.
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
from sparrow.frontends.native import (
    pipeline_requests,
    queue_requests,
    sink_requests,
    watch_requests,
    webhook_requests,
)
from sparrow.frontends.native.request_handler import (
    Arguments,
    Matching,
    Named,
    NoArguments,
    RequestContext,
    RequestHandler,
)
from sparrow.model.access import Quota
from sparrow.model.groups import CommittedOffset

if TYPE_CHECKING:
    from sparrow.broker.access.authz import Principal
    from sparrow.frontends.native.context import FrontendContext
    from sparrow.protocol.native.messages import Request


async def handle_request(frontend: FrontendContext, principal: Principal, request: Request) -> Any:
    """Return the result of a request.

    Raises:
        InvalidArgument: there is no such verb, or its arguments are wrong.
        SparrowError: the operation failed.
    """
    handler = HANDLERS.get(request.verb)
    if handler is None:
        raise InvalidArgument(f"There is no verb {request.verb[:80]!r}; there are {', '.join(HANDLERS)}.")
    try:
        arguments = msgspec.convert(request.arguments, handler.arguments)
    except (msgspec.ValidationError, OverflowError) as error:
        raise InvalidArgument(f"The arguments of {request.verb} are wrong: {error}.") from None
    measures, started = frontend.measures, perf_counter()
    try:
        return await handler.function(RequestContext(frontend, principal), arguments)
    except SparrowError:
        measures.failed(request.verb)
        raise
    finally:
        measures.observe(request.verb, perf_counter() - started)


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


class SkipBatch(Arguments, frozen=True):
    name: str
    partition: int
    offset: int
    force: bool = False


class SaltedPassword(msgspec.Struct, array_like=True, frozen=True):
    """A password hash as in RFC 5802: Hi(password, salt, iterations)."""

    mechanism: str
    iterations: int
    salt: bytes
    salted_password: bytes


class SetUser(Arguments, frozen=True):
    name: str
    credentials: list[SaltedPassword]


class AclRule(msgspec.Struct, frozen=True):
    """An access rule, with the names that Kafka uses."""

    resource_type: ResourceType
    name: str
    principal: str
    operation: Operation
    permission: Permission = Permission.ALLOW
    pattern_type: PatternType = PatternType.LITERAL
    host: str = ANY_HOST


class CreateRules(Arguments, frozen=True):
    rules: list[AclRule]


class SelectRules(Arguments, frozen=True):
    """A filter; omitted fields match all."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    principal: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY
    pattern_type: PatternType = PatternType.ANY
    host: str | None = None


class AlterQuota(Arguments, frozen=True):
    """`entity` maps types ("user", "client-id", "ip") to names; null is the default. A null in
    `values` removes the value.
    """

    entity: dict[str, str | None]
    values: dict[str, float | None]


class GroupNamed(Arguments, frozen=True):
    group: str


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


async def _create_topic(context: RequestContext, a: CreateTopic) -> Any:
    return await context.broker.topics.create(a.name, a.partitions, a.config, principal=context.principal)


async def _delete_topic(context: RequestContext, a: Named) -> Any:
    await context.broker.topics.delete(a.name, principal=context.principal)
    return {}


async def _describe_topic(context: RequestContext, a: Named) -> Any:
    await context.broker.topics.open(a.name, principal=context.principal)
    return context.broker.topics.describe(a.name, principal=context.principal)


async def _list_topics(context: RequestContext, a: Matching) -> Any:
    found = await context.broker.topics.listing_in_steps(a.pattern, principal=context.principal)
    return {"topics": found}


async def _configure_topic(context: RequestContext, a: ConfigureTopic) -> Any:
    return await context.broker.topics.configure(a.name, a.set, a.unset, principal=context.principal)


async def _add_partitions(context: RequestContext, a: AddPartitions) -> Any:
    return await context.broker.topics.add_partitions(a.name, a.total, principal=context.principal)


async def _ensure_topic(context: RequestContext, a: Named) -> Any:
    return await context.broker.topics.ensure(a.name, principal=context.principal)


async def _topic_offsets(context: RequestContext, a: TopicOffsets) -> Any:
    return {
        "offsets": await context.broker.records.offsets(
            a.name, a.at, a.value, a.partition, principal=context.principal
        )
    }


async def _delete_records(context: RequestContext, a: DeleteRecords) -> Any:
    return {
        "starts": await context.broker.topics.delete_records(a.name, a.offsets, principal=context.principal)
    }


async def _skip_batch(context: RequestContext, a: SkipBatch) -> Any:
    removed = await context.broker.topics.skip_batch(
        a.name, a.partition, a.offset, force=a.force, principal=context.principal
    )
    return {"removed": removed}


# ── groups ────────────────────────────────────────────────────────────────────────────────────────


async def _list_groups(context: RequestContext, _: NoArguments) -> Any:
    return {"groups": context.broker.groups.listing(principal=context.principal)}


async def _describe_group(context: RequestContext, a: GroupNamed) -> Any:
    return await context.broker.groups.report(a.group, principal=context.principal)


async def _commit_offsets(context: RequestContext, a: CommitOffsets) -> Any:
    offsets = {(o.topic, o.partition): (o.offset, o.metadata) for o in a.offsets}
    await context.broker.groups.commit_offsets(a.group, offsets, principal=context.principal)
    return {}


async def _group_offsets(context: RequestContext, a: GroupOffsets) -> Any:
    found = context.broker.groups.fetch_offsets(a.group, a.topics, principal=context.principal)
    return {"offsets": found}


async def _reset_group(context: RequestContext, a: ResetGroup) -> Any:
    offsets = await context.broker.groups.reset(
        a.group, a.topic, a.at, a.value, a.partitions, principal=context.principal
    )
    return {"offsets": offsets}


async def _delete_group(context: RequestContext, a: GroupNamed) -> Any:
    await context.broker.groups.delete(a.group, principal=context.principal)
    return {}


# ── users ─────────────────────────────────────────────────────────────────────────────────────────


async def _list_users(context: RequestContext, _: NoArguments) -> Any:
    return {"users": context.broker.users.listing(principal=context.principal)}


async def _create_user(context: RequestContext, a: SetUser) -> Any:
    await context.broker.users.create(_upsertions(a), principal=context.principal)
    return {}


async def _set_password(context: RequestContext, a: SetUser) -> Any:
    await context.broker.users.set_password(_upsertions(a), principal=context.principal)
    return {}


async def _delete_user(context: RequestContext, a: Named) -> Any:
    await context.broker.users.delete(a.name, principal=context.principal)
    return {}


def _upsertions(a: SetUser) -> list[Upsertion]:
    return [Upsertion(a.name, c.mechanism, c.iterations, c.salt, c.salted_password) for c in a.credentials]


# ── access rules ──────────────────────────────────────────────────────────────────────────────────


async def _create_rules(context: RequestContext, a: CreateRules) -> Any:
    """Create all rules or none: invalid rules are found before the first is created."""
    rules = [AclBinding(**msgspec.structs.asdict(rule)) for rule in a.rules]
    for rule in rules:
        check_rule(rule)
    for outcome in await context.broker.acls.create(rules, principal=context.principal):
        if outcome is not None:
            raise outcome
    return {}


async def _list_rules(context: RequestContext, a: SelectRules) -> Any:
    found = context.broker.acls.describe(_rule_filter(a), principal=context.principal)
    return {"rules": [msgspec.to_builtins(rule) for rule in found]}


async def _delete_rules(context: RequestContext, a: SelectRules) -> Any:
    (deleted,) = await context.broker.acls.delete([_rule_filter(a)], principal=context.principal)
    return {"rules": [msgspec.to_builtins(rule) for rule in deleted]}


def _rule_filter(a: SelectRules) -> AclFilter:
    return AclFilter(**msgspec.structs.asdict(a))


# ── quotas ────────────────────────────────────────────────────────────────────────────────────────


async def _alter_quota(context: RequestContext, a: AlterQuota) -> Any:
    change = QuotaChange(tuple(a.entity.items()), tuple(a.values.items()))
    (refused,) = await context.broker.quotas.alter([change], principal=context.principal)
    if refused is not None:
        raise refused
    return {}


async def _list_quotas(context: RequestContext, _: NoArguments) -> Any:
    found = context.broker.quotas.describe([], principal=context.principal)
    return {"quotas": [Quota(dict(entity), values) for entity, values in found]}


# ── the broker ────────────────────────────────────────────────────────────────────────────────────


async def _describe_broker(context: RequestContext, _: NoArguments) -> Any:
    broker = context.broker
    return {
        **broker.statistics(principal=context.principal),
        "version": version(),
        "cluster_id": broker.cluster_id,
        "uptime_ms": broker.clock.wall_ms() - broker.started_at_ms,
        "connections": context.frontend.connections,
    }


async def _reload_broker(context: RequestContext, _: NoArguments) -> Any:
    return await context.broker.reload(principal=context.principal)


HANDLERS: Final[dict[str, RequestHandler]] = {
    "topic.create": RequestHandler(CreateTopic, _create_topic),
    "topic.delete": RequestHandler(Named, _delete_topic),
    "topic.describe": RequestHandler(Named, _describe_topic),
    "topic.list": RequestHandler(Matching, _list_topics),
    "topic.configure": RequestHandler(ConfigureTopic, _configure_topic),
    "topic.add_partitions": RequestHandler(AddPartitions, _add_partitions),
    "topic.ensure": RequestHandler(Named, _ensure_topic),
    "topic.offsets": RequestHandler(TopicOffsets, _topic_offsets),
    "topic.delete_records": RequestHandler(DeleteRecords, _delete_records),
    "topic.skip_batch": RequestHandler(SkipBatch, _skip_batch),
    **watch_requests.HANDLERS,
    "group.list": RequestHandler(NoArguments, _list_groups),
    "group.describe": RequestHandler(GroupNamed, _describe_group),
    "group.commit": RequestHandler(CommitOffsets, _commit_offsets),
    "group.offsets": RequestHandler(GroupOffsets, _group_offsets),
    "group.reset": RequestHandler(ResetGroup, _reset_group),
    "group.delete": RequestHandler(GroupNamed, _delete_group),
    "user.list": RequestHandler(NoArguments, _list_users),
    "user.create": RequestHandler(SetUser, _create_user),
    "user.password": RequestHandler(SetUser, _set_password),
    "user.delete": RequestHandler(Named, _delete_user),
    "acl.create": RequestHandler(CreateRules, _create_rules),
    "acl.list": RequestHandler(SelectRules, _list_rules),
    "acl.delete": RequestHandler(SelectRules, _delete_rules),
    "quota.alter": RequestHandler(AlterQuota, _alter_quota),
    "quota.list": RequestHandler(NoArguments, _list_quotas),
    **queue_requests.HANDLERS,
    **webhook_requests.HANDLERS,
    **sink_requests.HANDLERS,
    **pipeline_requests.HANDLERS,
    "broker.describe": RequestHandler(NoArguments, _describe_broker),
    "broker.reload": RequestHandler(NoArguments, _reload_broker),
}
