"""Administration of queues: the part of `client.admin` that creates, describes and changes them.

Jobs are taken from a queue by `client.queue(name)`; nothing here leases or settles one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparrow.base.errors import InvalidArgument
from sparrow.base.queue_policy import known
from sparrow.client.admin_base import AdminBase, result_as
from sparrow.client.options import epoch_ms
from sparrow.client.policy import settings_of
from sparrow.client.results import DeadLetter, PeekedRecord, QueueDescription, RedriveProgress

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from sparrow.client.policy import Policy

BROKERS_CHOICE = -1
NO_LIMIT = 0
_DEAD_LETTERS_PER_CALL = 100


class QueueAdmin(AdminBase):
    """The operations on queues. Every method but `create_queue`, `ensure_queue` and `list_queues`
    may raise UnknownQueue, besides the errors that it names.
    """

    async def create_queue(
        self,
        name: str,
        topics: Iterable[str] = (),
        *,
        policy: Policy | None = None,
        partitions: int = BROKERS_CHOICE,
    ) -> QueueDescription:
        """Create a queue on some topics, by default on the one of its own name. Missing topics are
        created.

        An existing queue with the same topics and policy is returned like a new one.

        Args:
            policy: settings, such as {"lease": "30s", "delivery_limit": 3}; the others get their
                defaults.
            partitions: number of partitions of topics that are created.

        Raises:
            QueueExists: with other topics or another policy; the error names the differences.
                `ensure_queue` would change the queue.
            InvalidConfig, InvalidTopicName: the arguments are invalid.
        """
        arguments = _definition(name, topics, policy, partitions)
        return result_as(QueueDescription, await self._change("queue.create", arguments))

    async def ensure_queue(
        self,
        name: str,
        topics: Iterable[str] = (),
        *,
        policy: Policy | None = None,
        partitions: int = BROKERS_CHOICE,
    ) -> QueueDescription:
        """Create a queue, or change those settings of an existing one that differ. Any number of
        processes may call this at once.

        Settings that are not named stay as they are; topics and subscribers are added, never
        removed. `start` only applies to a new queue. The broker does all of it in one step, and the
        call is repeated over a lost connection.

        Args:
            topics: topics of a new queue, by default the one of its name; an existing queue gets
                those that it lacks.
            policy: settings, such as {"lease": "30s", "delivery_limit": 3}; the others get their
                defaults in a new queue.
            partitions: number of partitions of topics that are created.

        Raises:
            InvalidConfig, InvalidTopicName: the arguments are invalid.
        """
        arguments = _definition(name, topics, policy, partitions)
        return result_as(QueueDescription, await self._read("queue.ensure", arguments))

    async def configure_queue(
        self,
        name: str,
        set: Policy | None = None,  # noqa: A002 - the verb's own word
        unset: Iterable[str] = (),
    ) -> QueueDescription:
        """Change settings; `unset` resets settings to their defaults. Raises InvalidConfig."""
        arguments = {
            "name": name,
            "set": settings_of(set),
            "unset": [known(key).name for key in _listed(unset)],
        }
        return result_as(QueueDescription, await self._change("queue.configure", arguments))

    async def delete_queue(self, name: str) -> None:
        """Delete a queue with its state of each record. Its topics and dead letters stay."""
        await self._change("queue.delete", {"name": name})

    async def describe_queue(self, name: str) -> QueueDescription:
        """Return a queue with its policy and statistics."""
        return result_as(QueueDescription, await self._read("queue.describe", {"name": name}))

    async def list_queues(self, pattern: str = "*") -> list[QueueDescription]:
        """Return queues whose name matches (`*` any run of characters, `?` one), including Kafka
        share groups.
        """
        reply = await self._read("queue.list", {"pattern": pattern})
        return result_as(list[QueueDescription], reply["queues"])

    async def pause_queue(self, name: str) -> None:
        """Pause delivery until the queue is resumed, also over a restart of the broker. Leased
        records may be settled.
        """
        await self._change("queue.pause", {"name": name})

    async def resume_queue(self, name: str) -> None:
        """Resume delivery."""
        await self._change("queue.resume", {"name": name})

    async def purge_queue(self, name: str) -> int:
        """Finish all records that are not leased, without delivering them; return how many. They
        stay in their topics.
        """
        reply = await self._change("queue.purge", {"name": name})
        return result_as(int, reply["purged"])

    async def peek_queue(
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

        Args:
            states: only records in these states: "ready", "leased", "delayed", "blocked"; None:
                all.
            subscriber: the subscriber whose state is shown, where the queue has subscribers.
            skip: number of records to leave out first.

        Raises:
            InvalidArgument: no such state or subscriber.
        """
        arguments: dict[str, Any] = {
            "name": name,
            "max_records": max_records,
            "subscriber": subscriber,
            "skip": skip,
        }
        if states is not None:
            arguments["states"] = _listed(states)
        reply = await self._read("queue.peek", arguments)
        return result_as(list[PeekedRecord], reply["records"])

    async def dead_letters(
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

        Args:
            reason: the reason of the dead letter, such as "DELIVERY_LIMIT" or "REJECTED".
            topic, partition: the record's origin.
            error_contains: part of the last error's text.
            since, until: when the record became a dead letter.

        Raises:
            InvalidArgument: the queue keeps no dead letters, or `max_records` is less than 1.
        """
        if max_records < 1:
            raise InvalidArgument(f"max_records is {max_records}; it must be 1 or more")
        where = _where(
            reason=reason,
            topic=topic,
            partition=partition,
            key=key,
            error_contains=error_contains,
            subscriber=subscriber,
            since=since,
            until=until,
        )
        found: list[DeadLetter] = []
        skip = 0
        while skip >= 0 and len(found) < max_records:
            wanted = min(max_records - len(found), _DEAD_LETTERS_PER_CALL)
            arguments = {"name": name, "where": where, "max_records": wanted, "skip": skip}
            reply = await self._read("queue.dead_letters", arguments)
            found += result_as(list[DeadLetter], reply["letters"])
            skip = result_as(int, reply["next_skip"])
        return found

    async def redrive_queue(
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
        max_records: int = NO_LIMIT,
        per_second: float = NO_LIMIT,
    ) -> RedriveProgress:
        """Start to send dead letters of a queue back to their topics; `redrive_progress` returns
        the progress.

        Only those that match all conditions are sent, each exactly once, even over crashes of the
        broker.

        Args:
            reason: the reason of the dead letter, such as "DELIVERY_LIMIT" or "REJECTED".
            topic, partition: the record's origin.
            error_contains: part of the last error's text.
            since, until: when the record became a dead letter.
            max_records: limit of the number to send; 0: all.
            per_second: limit of the rate; 0: none.

        Raises:
            Conflict: a redrive of the queue is running.
        """
        where = _where(
            reason=reason,
            topic=topic,
            partition=partition,
            key=key,
            error_contains=error_contains,
            subscriber=subscriber,
            since=since,
            until=until,
        )
        arguments = {"name": name, "where": where, "max_records": max_records, "per_second": per_second}
        return result_as(RedriveProgress, await self._change("queue.redrive", arguments))

    async def redrive_progress(self, name: str) -> RedriveProgress:
        """Return the progress of a queue's redrive, or the result of the last one."""
        return result_as(RedriveProgress, await self._read("queue.redrive_progress", {"name": name}))

    async def stop_redrive(self, name: str) -> RedriveProgress:
        """Stop the redrive of a queue, if one is running; records that were sent stay sent."""
        return result_as(RedriveProgress, await self._change("queue.redrive_stop", {"name": name}))


def _definition(name: str, topics: Iterable[str], policy: Policy | None, partitions: int) -> dict[str, Any]:
    return {
        "name": name,
        "topics": _listed(topics),
        "policy": settings_of(policy),
        "partitions": partitions,
    }


def _where(*, since: datetime | None, until: datetime | None, **conditions: Any) -> dict[str, Any]:
    """Return conditions on dead letters as the protocol has them."""
    return {**conditions, "since_ms": _time_ms("since", since), "until_ms": _time_ms("until", until)}


def _time_ms(name: str, time: datetime | None) -> int | None:
    return None if time is None else epoch_ms(name, time)


def _listed(names: Iterable[str]) -> list[str]:
    """Return a list of names; a single name is a list of one, not of its characters."""
    return [names] if isinstance(names, str) else list(names)
