"""Topics that are created when a seed's client first uses them: with one partition, as those
systems keep the order of all messages of a topic.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sparrow.base.errors import TopicExists
from sparrow.frontends.seeds.caller import caller
from sparrow.frontends.seeds.settings import DEFAULT_MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from sparrow.broker.broker import Broker


_ENVELOPE_BYTES: Final = 128 << 10
"""Largest size of a batch of one message besides the message: its headers hold names of up to 64
KiB.
"""


def config_for(broker: Broker, max_message_bytes: int) -> dict[str, str]:
    """Return the configuration of a new topic that takes messages of `max_message_bytes`, if that
    limit was raised.
    """
    needed = max_message_bytes + _ENVELOPE_BYTES
    default = broker.topics.default_max_message_bytes
    is_raised = max_message_bytes > DEFAULT_MAX_MESSAGE_BYTES
    return {"max.message.bytes": str(needed)} if is_raised and needed > default else {}


async def ensure_topic(broker: Broker, name: str, max_message_bytes: int) -> bool:
    """Create the topic if it is missing and the broker creates topics automatically. Return True if
    it was created.

    Raises:
        UnknownTopic, InvalidTopicName, NotAuthorized
    """
    if broker.topics.exists(name):
        return False
    if not broker.config.auto_create_topics:
        await broker.topics.ensure(name, principal=caller())  # raises the reason
    with suppress(TopicExists):  # created by another client at the same time
        await broker.topics.create(name, 1, config_for(broker, max_message_bytes), principal=caller())
        return True
    return False
