"""Topics that come into being when a seed's client first uses them: with one partition, as those systems keep the order of all messages of a topic."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from sparrow.base.errors import TopicExists
from sparrow.broker.access.authz import ANONYMOUS

if TYPE_CHECKING:
    from sparrow.broker.broker import Broker


async def ensure_topic(broker: Broker, name: str) -> bool:
    """Make the topic if it is missing and the broker makes topics by itself. True: it was made.

    Raises:
        UnknownTopic, InvalidTopicName, NotAuthorized
    """
    if broker.topics.find(name) is not None:
        return False
    if not broker.config.auto_create_topics:
        await broker.ensure_topic(name, principal=ANONYMOUS)  # says why not
    with suppress(TopicExists):  # made by another at the same time
        await broker.create_topic(name, 1, principal=ANONYMOUS)
        return True
    return False
