"""Administration of queues for threads. See `sparrow.client.queue_admin` for details and errors of
each method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from sparrow.client.admin import Admin as AsyncAdmin
    from sparrow.client.policy import Policy
    from sparrow.client.results import DeadLetter, PeekedRecord, QueueDescription, RedriveProgress
    from sparrow.sync.background import Background


class QueueAdmin:
    """The part of `client.admin` for queues."""

    def __init__(self, background: Background, admin: AsyncAdmin) -> None:
        self._background = background
        self._admin = admin

    def __repr__(self) -> str:
        return f"<blocking {repr(self._admin)[1:]}"

    def create_queue(
        self,
        name: str,
        topics: Iterable[str] = (),
        *,
        policy: Policy | None = None,
        partitions: int = -1,
    ) -> QueueDescription:
        """Create a queue on some topics, by default on the one of its own name. Missing topics are
        created.
        """
        return self._background.run(
            self._admin.create_queue(name, topics, policy=policy, partitions=partitions)
        )

    def ensure_queue(
        self,
        name: str,
        topics: Iterable[str] = (),
        *,
        policy: Policy | None = None,
        partitions: int = -1,
    ) -> QueueDescription:
        """Create a queue, or change those settings of an existing one that differ. Any number of
        processes may call this at once.
        """
        return self._background.run(
            self._admin.ensure_queue(name, topics, policy=policy, partitions=partitions)
        )

    def configure_queue(
        self,
        name: str,
        set: Policy | None = None,  # noqa: A002 - the verb's own word
        unset: Iterable[str] = (),
    ) -> QueueDescription:
        """Change settings; `unset` resets settings to their defaults."""
        return self._background.run(self._admin.configure_queue(name, set, unset))

    def delete_queue(self, name: str) -> None:
        """Delete a queue with its state of each record. Its topics and dead letters stay."""
        self._background.run(self._admin.delete_queue(name))

    def describe_queue(self, name: str) -> QueueDescription:
        """Return a queue with its policy and statistics."""
        return self._background.run(self._admin.describe_queue(name))

    def list_queues(self, pattern: str = "*") -> list[QueueDescription]:
        """Return queues whose name matches (`*` any run of characters, `?` one), including Kafka
        share groups.
        """
        return self._background.run(self._admin.list_queues(pattern))

    def pause_queue(self, name: str) -> None:
        """Pause delivery until the queue is resumed. Leased records may be settled."""
        self._background.run(self._admin.pause_queue(name))

    def resume_queue(self, name: str) -> None:
        """Resume delivery."""
        self._background.run(self._admin.resume_queue(name))

    def purge_queue(self, name: str) -> int:
        """Finish all records that are not leased, without delivering them; return how many."""
        return self._background.run(self._admin.purge_queue(name))

    def peek_queue(
        self,
        name: str,
        max_records: int = 10,
        *,
        states: Iterable[str] | None = None,
        subscriber: str = "",
        skip: int = 0,
    ) -> list[PeekedRecord]:
        """Return the next unfinished records as they are now, without leasing them; fewer than
        `max_records` if they are large.
        """
        return self._background.run(
            self._admin.peek_queue(name, max_records, states=states, subscriber=subscriber, skip=skip)
        )

    def dead_letters(
        self,
        name: str,
        max_records: int = 10,
        *,
        reason: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        key: bytes | None = None,
        error_contains: str | None = None,
        subscriber: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[DeadLetter]:
        """Return the first dead letters of a queue that match all conditions, with their reasons.
        This changes nothing.
        """
        return self._background.run(
            self._admin.dead_letters(
                name,
                max_records,
                reason=reason,
                topic=topic,
                partition=partition,
                key=key,
                error_contains=error_contains,
                subscriber=subscriber,
                since=since,
                until=until,
            )
        )

    def redrive_queue(
        self,
        name: str,
        *,
        reason: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        key: bytes | None = None,
        error_contains: str | None = None,
        subscriber: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        max_records: int = 0,
        per_second: float = 0,
    ) -> RedriveProgress:
        """Start to send dead letters of a queue back to their topics; `redrive_progress` returns
        the progress.
        """
        return self._background.run(
            self._admin.redrive_queue(
                name,
                reason=reason,
                topic=topic,
                partition=partition,
                key=key,
                error_contains=error_contains,
                subscriber=subscriber,
                since=since,
                until=until,
                max_records=max_records,
                per_second=per_second,
            )
        )

    def redrive_progress(self, name: str) -> RedriveProgress:
        """Return the progress of a queue's redrive, or the result of the last one."""
        return self._background.run(self._admin.redrive_progress(name))

    def stop_redrive(self, name: str) -> RedriveProgress:
        """Stop the redrive of a queue, if one is running; records that were sent stay sent."""
        return self._background.run(self._admin.stop_redrive(name))
