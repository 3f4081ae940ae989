"""Tags of states, for changes that must not hit something else than what a person has seen.

A description has a tag (the header ETag), and a change that destroys something may name it
(If-Match): it is refused if the state is another one meanwhile. A tag covers what the thing is, its
settings, and the magnitude of what would be lost: a queue that takes jobs all the time can be
purged, but not one in which hundred jobs became ten thousand.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from sparrow.base.errors import Conflict
from sparrow.frontends.admin.webhooks import WebhookNamed, describe

if TYPE_CHECKING:
    from sparrow.frontends.admin.operation import OperationContext


class StateChanged(Conflict):
    """The state is not the one that If-Match names."""

    code = "STATE_CHANGED"


async def topic_tag(context: OperationContext, name: str) -> str:
    """Return the tag of a topic: its id, settings, partitions and magnitude.

    Raises:
        UnknownTopic, NotAuthorized
    """
    await context.broker.topics.open(name, principal=context.principal)
    found = context.broker.topics.describe(name, principal=context.principal)
    messages = sum(max(0, each.end_offset - each.start_offset) for each in found.partitions)
    settings = [(each.name, each.value) for each in found.config]
    return _tag(found.id, found.partition_count, settings, _magnitude(messages))


async def queue_tag(context: OperationContext, name: str) -> str:
    """Return the tag of a queue: its id, settings, topics, and magnitudes.

    Raises:
        UnknownQueue, NotAuthorized
    """
    found = context.broker.queues.describe(name, principal=context.principal)
    statistics = found.statistics
    magnitudes = [_magnitude(statistics.unfinished), _magnitude(statistics.dead)]
    return _tag(found.id, found.topics, found.policy, found.is_paused, magnitudes)


async def group_tag(context: OperationContext, name: str) -> str:
    """Return the tag of a group: its state, its members, and what it has committed.

    Raises:
        UnknownGroup, NotAuthorized
    """
    found = await context.broker.groups.report(name, principal=context.principal)
    offsets = [(each.topic, each.partition, each.offset) for each in found.offsets]
    return _tag(found.group, found.state, found.epoch, [each.member_id for each in found.members], offsets)


async def subscriber_tag(context: OperationContext, queue: str, name: str) -> str:
    """Return the tag of a subscriber: its webhook with its settings and when it was created, and
    the magnitude of its share of an all-of queue.

    Raises:
        UnknownQueue, UnknownWebhook, NotAuthorized
    """
    found = await describe(context, WebhookNamed(queue, name))
    hook, share = found.webhook, found.messages
    made = None if hook is None else (hook.created_ms, hook.owner, hook.settings, hook.is_paused)
    unfinished = 0 if share is None else share.ready + share.leased + share.delayed + share.blocked
    return _tag(queue, name, made, share is None, _magnitude(unfinished))


async def user_tag(context: OperationContext, name: str) -> str:
    """Return the tag of a user, which is another one after each change of a password.

    Raises:
        UnknownUser, NotAuthorized
    """
    return _tag(name, context.broker.users.version(name, principal=context.principal))


def check_tag(expected: str, tag: str) -> None:
    """Check the header If-Match.

    Raises:
        StateChanged
    """
    if expected not in (tag, "*"):
        raise StateChanged("it was changed since you looked at it, so nothing was done; look again")


def _magnitude(count: int) -> int:
    return len(str(count)) if count else 0


def _tag(*parts: object) -> str:
    digest = hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()
    return f'"{digest[:20]}"'
