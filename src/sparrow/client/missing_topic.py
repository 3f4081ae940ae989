"""Topics that a client needs and makes itself: of results, of other APIs' queues."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from sparrow.base.errors import NotAuthorized, TopicExists, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparrow.client.admin import Admin, ConfigValue


async def create_if_missing(
    admin: Admin, name: str, *, partitions: int, config: Mapping[str, ConfigValue]
) -> None:
    """Create a topic unless it exists.

    It looks first: where the topic exists nobody needs the right to create it, and the broker's
    audit has no refused creation for each client that starts.

    Raises:
        SparrowError: it cannot be created.
    """
    with suppress(UnknownTopic, NotAuthorized):
        await admin.describe_topic(name)
        return
    with suppress(TopicExists):  # another client was faster
        await admin.create_topic(name, partitions=partitions, config=config)
