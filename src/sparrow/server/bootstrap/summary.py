"""A summary, in a few lines for people, of what a configuration declares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.base.units import counted, format_duration
from sparrow.broker.schedules.settings import new_settings
from sparrow.server.config import kafka_listeners, seed_ports
from sparrow.server.listeners import OFF

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparrow.server.bootstrap.queues import QueueDeclaration
    from sparrow.server.bootstrap.schedules import ScheduleDeclaration
    from sparrow.server.bootstrap.topics import TopicDeclaration
    from sparrow.server.config import ServerConfig


def summary(config: ServerConfig) -> Iterator[tuple[str, str]]:
    """Return a line for each kind of declaration that exists."""
    yield "data", config.cluster.location if config.cluster.is_on else config.data_dir
    yield from _frontends(config)
    for topic in config.topics:
        yield "topic", _topic(topic)
    for queue in config.queues:
        yield "queue", _queue(queue)
        for endpoint in queue.endpoints:
            yield "webhook", f"{queue.name}/{endpoint.name}: {endpoint.settings['url']}"
    for schedule in config.schedules:
        yield "schedule", _schedule(schedule)
    if config.users:
        yield "users", ", ".join(sorted(config.users))
    if config.tokens:
        yield "tokens", ", ".join(sorted(config.tokens))
    if config.acls:
        yield "acls", counted(len(config.acls), "access rule")
    for pipeline in config.pipelines:
        yield "pipeline", f"{pipeline.name}: {pipeline.file}"


def _frontends(config: ServerConfig) -> Iterator[tuple[str, str]]:
    yield "native", f"{config.native_host}:{config.native_port}"
    for listener in kafka_listeners(config):
        yield "Kafka", f"{listener.host}:{listener.port}"
    if config.http_port != OFF:
        yield "HTTP", f"{config.http_host}:{config.http_port}"
    for name, port in seed_ports(config).items():
        yield "seed", f"{name} {config.seeds_host}:{port}"


def _topic(topic: TopicDeclaration) -> str:
    partitions = "" if topic.partitions < 0 else f", {counted(topic.partitions, 'partition')}"
    return f"{topic.name}{partitions}{_settings(topic.config)}"


def _queue(queue: QueueDeclaration) -> str:
    on = f" on {', '.join(queue.topics)}" if queue.topics != (queue.name,) else ""
    subscribers = f", subscribers {', '.join(queue.subscribers)}" if queue.subscribers else ""
    return f"{queue.name}{on}{_settings(queue.policy)}{subscribers}"


def _schedule(schedule: ScheduleDeclaration) -> str:
    settings = new_settings(schedule.settings)
    when = settings.cron or f"every {format_duration(settings.every_ms)}"
    zone = f" ({settings.time_zone})" if settings.cron else ""
    return f"{schedule.name}: {when}{zone} to {settings.queue}"


def _settings(settings: object) -> str:
    pairs = [f"{name}={value}" for name, value in dict(settings).items()]  # type: ignore[call-overload]
    return f", {', '.join(pairs)}" if pairs else ""
