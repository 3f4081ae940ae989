"""The members of share groups that fetch through this door: their sessions, and the consumers by which they hold records.

When a session ends, by the member's word or with its connection, what the member holds is released. Those deliveries count, as in
Kafka: a record that kills its consumers ends at the delivery limit.
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
    """Of one door. Loop thread only."""

    def __init__(self, broker: Broker, limits: KafkaLimits) -> None:
        self.sessions = ShareSessions(limits.max_share_sessions, limits.max_share_session_partitions)
        self._broker = broker
        self._releasing: set[asyncio.Task[None]] = set()

    def consumer(self, session: ShareSession, client_name: str) -> QueueConsumer:
        """Who acquires records for the member.

        Raises:
            UnknownQueue: the group has no queue (any more). InvalidArgument: its queue has subscribers. NotAuthorized
        """
        consumer = session.consumer
        if consumer is None or not consumer.is_open:
            consumer = session.consumer = self._broker.queues.open_member(
                session.group, session.member_id, client_name=client_name, principal=session.owner
            )
        return consumer

    async def close(self, session: ShareSession) -> None:
        """The member closes its session; what it holds is released, durably."""
        self.sessions.close(session)
        await asyncio.shield(self._release(session))

    def disconnected(self, connection: object) -> None:
        """A connection is lost: its sessions end."""
        for session in self.sessions.disconnected(connection):
            self._release(session)

    def drain(self) -> None:
        """The door closes: all sessions end, and nobody waits for records any more."""
        for session in self.sessions:
            self.sessions.close(session)
            self._release(session)

    async def settled(self) -> None:
        """What has been released by now is kept."""
        if self._releasing:
            await asyncio.wait(set(self._releasing))

    def _release(self, session: ShareSession) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(_give_back(session))
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)
        return task


async def _give_back(session: ShareSession) -> None:
    consumer, session.consumer = session.consumer, None
    if consumer is None:
        return
    try:
        await consumer.close(give_back=True, counts=True)
    except SparrowError as error:
        log.warning(
            "what member %s of group %s held could not be released durably: %s",
            session.member_id,
            session.group,
            error.text,
        )
