"""Bring a broker to what its configuration declares, at each start, before clients can connect.

Each step is one operation of the broker and durable by itself, and each looks first at what exists.
So a start that was killed between two steps is finished by the next one, and a start that finds
everything as declared writes nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import BadInput, Conflict, InvalidArgument, InvalidConfig, LogDamaged, NotFound
from sparrow.base.queue_policy import changes_to
from sparrow.broker.access.acls import AclFilter
from sparrow.broker.access.authz import SYSTEM
from sparrow.broker.queues.persistence.definition import SHARE
from sparrow.broker.webhooks.endpoint import SYNCBROK

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from sparrow.broker.broker import Broker
    from sparrow.broker.queues.queue import Queue
    from sparrow.broker.topics.registry import Topic
    from sparrow.server.bootstrap.endpoints import EndpointDeclaration
    from sparrow.server.bootstrap.queues import QueueDeclaration
    from sparrow.server.bootstrap.schedules import ScheduleDeclaration
    from sparrow.server.bootstrap.topics import TopicDeclaration
    from sparrow.server.config import ServerConfig

_LOG: Final = logging.getLogger("sparrow.server")


async def apply(broker: Broker, config: ServerConfig) -> None:
    """Create what is missing and change what differs; each change is logged.

    Raises:
        InvalidConfig: a declaration is impossible here, such as more partitions than allowed.
        DiskFull, StorageFailed: it cannot be stored.
    """
    if any(queue.endpoints for queue in config.queues):
        from sparrow.broker.webhooks.addresses import AddressRules

        broker.webhooks.addresses = AddressRules(config.webhooks.allow)
    for topic in config.topics:
        await _doing(f"topics: the topic {topic.name!r}", _apply_topic(broker, topic))
    for queue in config.queues:
        await _doing(f"queues: the queue {queue.name!r}", _apply_queue(broker, queue, config))
    for schedule in config.schedules:
        await _doing(f"schedules: the schedule {schedule.name!r}", _apply_schedule(broker, schedule))
    await _apply_rules(broker, config)


async def _doing(what: str, step: Coroutine[None, None, None]) -> None:
    try:
        await step
    except (BadInput, Conflict) as error:
        raise InvalidConfig(f"{what} of the configuration file cannot be made: {error.text}") from None


# ── topics ────────────────────────────────────────────────────────────────────────────────────────


async def _apply_topic(broker: Broker, declared: TopicDeclaration) -> None:
    topic = broker.parts.topic_registry.find(declared.name)
    if topic is None:
        await broker.topics.create(declared.name, declared.partitions, declared.config, principal=SYSTEM)
        _LOG.info("topic made", extra={"topic": declared.name})
        return
    changes = {k: v for k, v in declared.config.items() if topic.config.overrides.get(k) != v}
    if changes:
        await broker.topics.configure(declared.name, changes, principal=SYSTEM)
        _LOG.info("topic configured", extra={"topic": declared.name, "config": changes})
    await _grow(broker, topic, declared.partitions)


async def _grow(broker: Broker, topic: Topic, partitions: int) -> None:
    count = len(topic.partitions)
    if 0 < partitions < count:
        _LOG.warning(
            "the configuration file declares fewer partitions than the topic has; a topic never shrinks",
            extra={"topic": topic.name, "partitions": count, "declared": partitions},
        )
    elif partitions > count:
        await broker.topics.add_partitions(topic.name, partitions, principal=SYSTEM)
        _LOG.info("partitions added", extra={"topic": topic.name, "partitions": partitions})


# ── queues ────────────────────────────────────────────────────────────────────────────────────────


async def _apply_queue(broker: Broker, declared: QueueDeclaration, config: ServerConfig) -> None:
    queue = broker.parts.queue_registry.find(declared.name)
    if queue is None:
        policy = {**declared.policy, "subscribers": list(declared.subscribers)}
        await broker.queues.create(
            declared.name, declared.topics, policy, partitions=declared.partitions, principal=SYSTEM
        )
        _LOG.info("queue made", extra={"queue": declared.name})
    elif queue.definition.kind == SHARE:
        _warn(
            declared.name,
            "a Kafka share group has this name; the queue of the configuration file is not made",
        )
        return
    else:
        await _change_queue(broker, queue, declared)
    for endpoint in declared.endpoints:
        await _apply_endpoint(broker, declared.name, endpoint, config)


async def _change_queue(broker: Broker, queue: Queue, declared: QueueDeclaration) -> None:
    name = declared.name
    new = [topic for topic in declared.topics if topic not in queue.definition.topics]
    if new:
        await broker.queues.add_topics(name, new, partitions=declared.partitions, principal=SYSTEM)
        _LOG.info("topics added to a queue", extra={"queue": name, "topics": new})
    changes = _policy_changes(queue, declared)
    if changes:
        await broker.queues.configure(name, changes, principal=SYSTEM)
        _LOG.info("queue configured", extra={"queue": name, "policy": changes})


def _policy_changes(queue: Queue, declared: QueueDeclaration) -> Mapping[str, object]:
    """Return the settings in which the queue differs from the file. Subscribers that the file does
    not name stay.
    """
    policy = queue.definition.policy
    changes = changes_to(policy, {**declared.policy, "subscribers": list(declared.subscribers)})
    if "start" in changes:
        start = changes.pop("start")
        _warn(
            queue.name,
            f"it began at {policy.start!r}, and a queue begins only once: {start!r} of the file "
            "does not count",
        )
    return changes


def _warn(queue: str, text: str) -> None:
    _LOG.warning("queue %r: %s", queue, text)


async def _apply_endpoint(
    broker: Broker, queue: str, declared: EndpointDeclaration, config: ServerConfig
) -> None:
    before = broker.parts.webhook_registry.find(queue, declared.name)
    settings = dict(declared.settings)
    if settings.get("format") == SYNCBROK:
        settings.setdefault("timeout_ms", config.seeds.endpoint_timeout_ms)
    if declared.secrets is not None:
        settings["secrets"] = list(declared.secrets)
    try:
        await broker.webhooks.put(
            queue, declared.name, settings, is_trusted=declared.is_trusted, principal=SYSTEM
        )
    except InvalidArgument as error:  # settings that others made stay
        _warn(queue, f"the webhook {declared.name!r} of the configuration file is not made: {error.text}")
    if broker.parts.webhook_registry.find(queue, declared.name) is not before:
        what = "webhook made" if before is None else "webhook configured"
        _LOG.info(what, extra={"queue": queue, "webhook": declared.name})


# ── schedules ─────────────────────────────────────────────────────────────────────────────────────


async def _apply_schedule(broker: Broker, declared: ScheduleDeclaration) -> None:
    before = broker.parts.schedule_registry.find(declared.name)
    definition = None if before is None else before.definition
    try:
        await broker.schedules.put(declared.name, declared.settings, principal=SYSTEM)
    except (NotFound, LogDamaged) as error:  # others may have deleted the queue since
        text = "the schedule %r of the configuration file is not made: %s"
        _LOG.warning(text, declared.name, error.text)
        return
    if broker.parts.schedule_registry.get(declared.name).definition is not definition:
        what = "schedule made" if before is None else "schedule configured"
        _LOG.info(what, extra={"schedule": declared.name})


# ── access rules ──────────────────────────────────────────────────────────────────────────────────


async def _apply_rules(broker: Broker, config: ServerConfig) -> None:
    if not config.acls:
        return
    rules = set(broker.acls.describe(AclFilter(), principal=SYSTEM))
    missing = [rule for rule in config.acls if rule not in rules]
    if missing:
        await broker.acls.create(missing, principal=SYSTEM)
        _LOG.info("access rules made", extra={"rules": len(missing)})
