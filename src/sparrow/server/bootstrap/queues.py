"""Queues of the configuration file: their topics, policy, subscribers and webhooks.

    queues:
      emails:
        topics: [emails]
        partitions: 4
        policy: {lease: 30s, delivery_limit: 3}
        subscribers:
          billing: https://example.org/hook
          archive:

`subscribers` makes an "all of" queue, each of whose subscribers must handle each record; those that
are a URL are sent it. `webhooks` are endpoints of a queue without subscribers: they and other
consumers compete for its records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from sparrow.base.errors import SparrowError
from sparrow.base.faults import misfit
from sparrow.base.queue_policy import SETTINGS, QueuePolicy
from sparrow.base.settings import TEXT, TEXT_SCHEMA, Kind
from sparrow.base.shapes import NAME, Part, Section, list_of, named, section_of
from sparrow.server.bootstrap.endpoints import (
    SUBSCRIBERS,
    WEBHOOKS,
    EndpointDeclaration,
    SubscriberDeclaration,
)
from sparrow.server.bootstrap.settings import part_of, without_aliases
from sparrow.server.bootstrap.topics import PARTITIONS, check_topic

ALIASES = {each.word: each.name for each in SETTINGS.values() if each.word != each.name}
"""Short names of settings whose full names have a unit."""
_ELSEWHERE = {
    "subscribers": "subscribers are beside the policy, as 'subscribers' of the queue",
    "isolation": "isolation is for share groups; a queue never delivers records of open transactions",
}
_SETTINGS = tuple(each for each in SETTINGS.values() if each.name not in _ELSEWHERE)


class QueueDeclaration(Struct, frozen=True):
    """A declared queue. `partitions` -1: the broker's default, for topics that are created for
    it.
    """

    name: str
    topics: tuple[str, ...]
    partitions: int
    policy: Mapping[str, object]
    """Settings that the file names."""
    subscribers: tuple[str, ...]
    endpoints: tuple[EndpointDeclaration, ...]


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
    from sparrow.broker.queues.registry import check_dead_letters, check_name_and_topics

    try:
        check_name_and_topics(name, topics)
        check_dead_letters(name, topics, QueuePolicy().changed(policy))
    except SparrowError as error:
        raise misfit(error.text) from None


_POLICY = Section(
    "a policy",
    {key: part_of(each, key, each.read) for each in _SETTINGS for key in (each.word, each.name)},
    advice=_ELSEWHERE,
)
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
        **{name: f"{name!r} is a setting of the policy; put it under 'policy'" for name in _POLICY.parts},
        "urls": "the endpoints of a queue belong under 'subscribers' (all get each record) or "
        "'webhooks' (they compete);"
        " a file of Syncbrok has Queues and Storage only",
        "topic": "the topics of a queue belong under 'topics'",
    },
)
QUEUES = named(_QUEUE, _make, "queues")
