"""Administration of queues for threads. See `sparrow.client.queue_admin` for what each method does and raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from sparrow.client.admin import Admin as AsyncAdmin
    from sparrow.client.queue_admin import PolicyValue
    from sparrow.client.results import PeekedRecord, QueueDescription, RedriveProgress
    from sparrow.sync.background import Background


class QueueAdmin:
    """The part of `client.admin` for queues."""

    def __init__(self, background: Background, admin: AsyncAdmin) -> None:
        self._background = background
        self._admin = admin

    def create_queue(
        self,
        name: str,
        topics: Iterable[str] = (),
        *,
        policy: Mapping[str, PolicyValue] | None = None,
        partitions: int = -1,
    ) -> QueueDescription:
        """Create a queue on some topics, by default on the one of its own name; topics that are missing are made."""
        return self._background.run(
            self._admin.create_queue(name, topics, policy=policy, partitions=partitions)
        )

    def configure_queue(
        self,
        name: str,
        set: Mapping[str, PolicyValue] | None = None,  # noqa: A002 - the verb's own word
        unset: Iterable[str] = (),
    ) -> QueueDescription:
        """Change settings; `unset` takes them back to their defaults."""
        return self._background.run(self._admin.configure_queue(name, set, unset))

    def delete_queue(self, name: str) -> None:
        """Forget a queue and what it knows of each record. Its topics and dead letters stay."""
        self._background.run(self._admin.delete_queue(name))

    def describe_queue(self, name: str) -> QueueDescription:
        """A queue with its policy and statistics."""
        return self._background.run(self._admin.describe_queue(name))

    def list_queues(self, pattern: str = "*") -> list[QueueDescription]:
        """Queues whose name matches (`*` any run of characters, `?` one), share groups of Kafka included."""
        return self._background.run(self._admin.list_queues(pattern))

    def pause_queue(self, name: str) -> None:
        """Deliver nothing more until it is resumed; what is leased may be settled."""
        self._background.run(self._admin.pause_queue(name))

    def resume_queue(self, name: str) -> None:
        """Deliver again."""
        self._background.run(self._admin.resume_queue(name))

    def purge_queue(self, name: str) -> int:
        """Finish all records that nobody has leased, without delivering them; returns how many."""
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
        """The next unfinished records as they are now, without leasing them; fewer if they are large."""
        return self._background.run(
            self._admin.peek_queue(name, max_records, states=states, subscriber=subscriber, skip=skip)
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
        """Begin to send dead letters of a queue back to where they came from; ask `redrive_progress` how far it is."""
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
        """How far the redrive of a queue is, or how the last one ended."""
        return self._background.run(self._admin.redrive_progress(name))

    def stop_redrive(self, name: str) -> RedriveProgress:
        """End the redrive of a queue, if there is one; what it sent stays sent."""
        return self._background.run(self._admin.stop_redrive(name))
