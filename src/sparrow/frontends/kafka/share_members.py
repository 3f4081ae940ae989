"""The members of share groups that fetch through this frontend: their sessions, and the queue
consumers that acquire records for them.

When a session ends, on request or with its connection, the records that the member acquired are
released. Those deliveries count, as in Kafka: a record that kills its consumers ends at the
delivery limit.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from sparrow.base.errors import SparrowError
from sparrow.frontends.kafka.share_sessions import ShareSession, ShareSessions

if TYPE_CHECKING:
    from sparrow.broker.broker import Broker
    from sparrow.broker.queues.consumer import QueueConsumer
    from sparrow.frontends.kafka.limits import KafkaLimits

log = logging.getLogger("sparrow.kafka")


class ShareMembers:
    """The share group members of one frontend. Loop thread only."""

    def __init__(self, broker: Broker, limits: KafkaLimits) -> None:
        self.sessions = ShareSessions(limits.max_share_sessions, limits.max_share_session_partitions)
        self._broker = broker
        self._releasing: set[asyncio.Task[None]] = set()

    def consumer(self, session: ShareSession, client_name: str) -> QueueConsumer:
        """Return the consumer that acquires records for the member.

        Raises:
            UnknownQueue: the group has no queue (any more).
            InvalidArgument: its queue has subscribers.
            NotAuthorized: the owner may not read from the group.
        """
        consumer = session.consumer
        if consumer is None or not consumer.is_open:
            consumer = session.consumer = self._broker.queues.open_member(
                session.group, session.member_id, client_name=client_name, principal=session.owner
            )
        return consumer

    async def close(self, session: ShareSession) -> None:
        """Close a session as the member asks; its records are released durably."""
        self.sessions.close(session)
        await asyncio.shield(self._release(session))

    def disconnected(self, connection: object) -> None:
        """Close the sessions of a lost connection."""
        for session in self.sessions.disconnected(connection):
            self._release(session)

    def drain(self) -> None:
        """Close all sessions when the frontend stops; no member waits for records any more."""
        for session in self.sessions:
            self.sessions.close(session)
            self._release(session)

    async def settled(self) -> None:
        """Wait until all releases so far are stored."""
        if self._releasing:
            await asyncio.wait(set(self._releasing))

    def _release(self, session: ShareSession) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(_release_records(session))
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)
        return task


async def _release_records(session: ShareSession) -> None:
    consumer, session.consumer = session.consumer, None
    if consumer is None:
        return
    try:
        await consumer.close(release=True, counts=True)
    except SparrowError as error:
        log.warning(
            "the records of member %s of group %s could not be released durably: %s",
            session.member_id,
            session.group,
            error.text,
        )
