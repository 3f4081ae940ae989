"""Queues of the configuration file: their topics, policy, subscribers and webhooks.

    queues:
      emails:
        topics: [emails]
        partitions: 4
        policy: {lease: 30s, delivery_limit: 3}
        subscribers:
          billing: https://example.org/hook
          archive:

`subscribers` makes an "all of" queue, each of whose subscribers must handle each record; those that are a URL are sent it. `webhooks` are endpoints of a queue without
subscribers: they and other consumers compete for its records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparrow.base.errors import SparrowError
from sparrow.base.faults import misfit
from sparrow.base.options import TEXT, TEXT_SCHEMA, Kind
from sparrow.base.shapes import NAME, Part, Section, list_of, named, section_of
from sparrow.broker.queues.policy import BACKOFFS, ORDERS, PARENT_FAILED, TIMESTAMP_PREFIX, QueuePolicy
from sparrow.server.bootstrap.endpoints import (
    SUBSCRIBERS,
    WEBHOOKS,
    EndpointDeclaration,
    SubscriberDeclaration,
)
from sparrow.server.bootstrap.settings import parts_of, without_aliases
from sparrow.server.bootstrap.topics import PARTITIONS, check_topic

ALIASES = {
    "lease": "lease_ms",
    "backoff_delay": "backoff_ms",
    "backoff_max": "backoff_max_ms",
    "jitter": "backoff_jitter",
    "expiry": "expiry_ms",
    "parent_wait": "parent_wait_ms",
}
"""Other names of settings: those of the command line's options."""
_ELSEWHERE = {
    "subscribers": "subscribers stand beside the policy, as 'subscribers' of the queue",
    "isolation": "isolation is for share groups; a queue never delivers records of open transactions",
}
POLICY_SETTINGS = {name: value for name, value in QueuePolicy().settings().items() if name not in _ELSEWHERE}
"""With their defaults."""
_CHOICES = {"order": ORDERS, "backoff": BACKOFFS, "parent_failed": PARENT_FAILED}


@dataclass(frozen=True, slots=True)
class QueueDeclaration:
    """A queue that exists after the start. `partitions` -1: the broker's default, for topics that are made for it."""

    name: str
    topics: tuple[str, ...]
    partitions: int
    policy: Mapping[str, object]
    """The settings that the file names."""
    subscribers: tuple[str, ...]
    endpoints: tuple[EndpointDeclaration, ...]


def _check(name: str, value: object) -> object:
    # YAML makes a point in time of 2026-05-01T12:00:00Z.
    if name == "start" and hasattr(value, "timestamp"):
        value = f"{TIMESTAMP_PREFIX}{round(value.timestamp() * 1000)}"
    return QueuePolicy().changed({name: value}).settings()[name]


def _policy(values: dict[str, Any]) -> dict[str, object]:
    return without_aliases(values, ALIASES)


def _read_topic(given: object) -> str:
    return check_topic(TEXT.read(given))


def _make(values: dict[str, Any]) -> QueueDeclaration:
    name: str = values[NAME]
    topics: tuple[str, ...] = values.get("topics") or (check_topic(name),)
    policy: dict[str, object] = values.get("policy", {})
    subscribers: tuple[SubscriberDeclaration, ...] = values.get("subscribers", ())
    webhooks: tuple[EndpointDeclaration, ...] = values.get("webhooks", ())
    if subscribers and webhooks:
        raise misfit(
            "a queue with subscribers is sent to those; put the url behind the name of a subscriber",
            "webhooks",
        )
    names = tuple(each.name for each in subscribers)
    _check_definition(name, topics, {**policy, "subscribers": list(names)})
    endpoints = webhooks or tuple(each.endpoint for each in subscribers if each.endpoint is not None)
    return QueueDeclaration(name, topics, values.get("partitions", -1), policy, names, endpoints)


def _check_definition(name: str, topics: tuple[str, ...], policy: Mapping[str, object]) -> None:
    from sparrow.broker.queues.queues import check_dead_letters, check_name_and_topics

    try:
        check_name_and_topics(name, topics)
        check_dead_letters(name, topics, QueuePolicy().changed(policy))
    except SparrowError as error:
        raise misfit(error.text) from None


_POLICY = Section("a policy", parts_of(POLICY_SETTINGS, ALIASES, _check, _CHOICES), advice=_ELSEWHERE)
_QUEUE = Section(
    "a queue",
    {
        "topics": Part(list_of(Kind("topic", _read_topic, schema=TEXT_SCHEMA), "topics")),
        "partitions": Part(PARTITIONS),
        "policy": Part(section_of(_POLICY, _policy)),
        "subscribers": Part(SUBSCRIBERS),
        "webhooks": Part(WEBHOOKS),
    },
    advice={
        **{
            name: f"{name!r} is a setting of the policy; put it under 'policy'"
            for name in (*POLICY_SETTINGS, *ALIASES)
        },
        "urls": "the endpoints of a queue stand under 'subscribers' (all get each record) or 'webhooks' (they compete);"
        " a file of Syncbrok has Queues and Storage only",
        "topic": "the topics of a queue stand under 'topics'",
    },
)
QUEUES = named(_QUEUE, _make, "queues")
