"""Administration of queues: the part of `client.admin` that makes them, looks into them and changes them.

Records are taken from a queue by `client.queue(name)`; nothing here leases or settles one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sparrow.client.options import epoch_ms
from sparrow.client.results import PeekedRecord, QueueDescription, RedriveProgress
from sparrow.client.verbs import Verbs, result_as

if TYPE_CHECKING:
    from collections.abc import Iterable

PolicyValue = str | int | float | datetime | Sequence[str] | Mapping[str, int] | None
"""A setting of a queue's policy, as `docs/queues.md` lists them; a `start` may be a datetime."""

BROKERS_CHOICE = -1
NO_LIMIT = 0


class QueueAdmin(Verbs):
    """The verbs of queues. Every method but `create_queue` and `list_queues` raises UnknownQueue besides what it names."""

    async def create_queue(
        self,
        name: str,
        topics: Iterable[str] = (),
        *,
        policy: Mapping[str, PolicyValue] | None = None,
        partitions: int = BROKERS_CHOICE,
    ) -> QueueDescription:
        """Create a queue on some topics, by default on the one of its own name; topics that are missing are made.

        A queue that is there with the same topics and policy is as good as a new one.

        Args:
            policy: settings by name, such as {"delivery_limit": 3}; the others get their defaults.
            partitions: of topics that are made.

        Raises:
            QueueExists: with other topics or another policy.
            InvalidConfig, InvalidTopicName: there cannot be such a queue.
        """
        arguments = {
            "name": name,
            "topics": _listed(topics),
            "policy": _settings(policy or {}),
            "partitions": partitions,
        }
        return result_as(QueueDescription, await self._change("queue.create", arguments))

    async def configure_queue(
        self,
        name: str,
        set: Mapping[str, PolicyValue] | None = None,  # noqa: A002 - the verb's own word
        unset: Iterable[str] = (),
    ) -> QueueDescription:
        """Change settings; `unset` takes them back to their defaults. Raises InvalidConfig."""
        arguments = {"name": name, "set": _settings(set or {}), "unset": _listed(unset)}
        return result_as(QueueDescription, await self._change("queue.configure", arguments))

    async def delete_queue(self, name: str) -> None:
        """Forget a queue and what it knows of each record. Its topics and dead letters stay."""
        await self._change("queue.delete", {"name": name})

    async def describe_queue(self, name: str) -> QueueDescription:
        """A queue with its policy and statistics."""
        return result_as(QueueDescription, await self._read("queue.describe", {"name": name}))

    async def list_queues(self, pattern: str = "*") -> list[QueueDescription]:
        """Queues whose name matches (`*` any run of characters, `?` one), share groups of Kafka included."""
        answer = await self._read("queue.list", {"pattern": pattern})
        return result_as(list[QueueDescription], answer["queues"])

    async def pause_queue(self, name: str) -> None:
        """Deliver nothing more until it is resumed; what is leased may be settled. It stays so over a restart of the broker."""
        await self._change("queue.pause", {"name": name})

    async def resume_queue(self, name: str) -> None:
        """Deliver again."""
        await self._change("queue.resume", {"name": name})

    async def purge_queue(self, name: str) -> int:
        """Finish all records that nobody has leased, without delivering them; returns how many. They stay in their topics."""
        answer = await self._change("queue.purge", {"name": name})
        return result_as(int, answer["purged"])

    async def peek_queue(
        self,
        name: str,
        max_records: int = 10,
        *,
        states: Iterable[str] | None = None,
        subscriber: str = "",
        skip: int = 0,
    ) -> list[PeekedRecord]:
        """The next unfinished records as they are now, without leasing them; fewer if they are large.

        Args:
            states: only those "ready", "leased", "delayed", "blocked"; None: all.
            subscriber: whose view, where a queue has subscribers.
            skip: leave out so many first.

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
        answer = await self._read("queue.peek", arguments)
        return result_as(list[PeekedRecord], answer["records"])

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
        """Begin to send dead letters of a queue back to where they came from; ask `redrive_progress` how far it is.

        Only those that match all that is given are sent, each exactly once, over crashes of the broker as well.

        Args:
            reason: why they died, such as "DELIVERY_LIMIT" or "REJECTED".
            topic, partition: where they came from.
            error_contains: part of the last error's text.
            since, until: when they died.
            max_records: at most so many; 0: all.
            per_second: at most so many per second; 0: as fast as it goes.

        Raises:
            Conflict: a redrive of the queue is under way.
        """
        where = {
            "reason": reason,
            "topic": topic,
            "partition": partition,
            "key": key,
            "error_contains": error_contains,
            "subscriber": subscriber,
            "since_ms": _time_ms("since", since),
            "until_ms": _time_ms("until", until),
        }
        arguments = {"name": name, "where": where, "max_records": max_records, "per_second": per_second}
        return result_as(RedriveProgress, await self._change("queue.redrive", arguments))

    async def redrive_progress(self, name: str) -> RedriveProgress:
        """How far the redrive of a queue is, or how the last one ended."""
        return result_as(RedriveProgress, await self._read("queue.redrive_progress", {"name": name}))

    async def stop_redrive(self, name: str) -> RedriveProgress:
        """End the redrive of a queue, if there is one; what it sent stays sent."""
        return result_as(RedriveProgress, await self._change("queue.redrive_stop", {"name": name}))


def _settings(policy: Mapping[str, PolicyValue]) -> dict[str, Any]:
    return {name: _wire_value(name, value) for name, value in policy.items()}


def _wire_value(name: str, value: PolicyValue) -> Any:
    if isinstance(value, datetime):
        return f"timestamp:{epoch_ms(name, value)}"
    if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
        return value
    return list(value)


def _time_ms(name: str, time: datetime | None) -> int | None:
    return None if time is None else epoch_ms(name, time)


def _listed(names: Iterable[str]) -> list[str]:
    """One name by itself is a list of one, not of its letters."""
    return [names] if isinstance(names, str) else list(names)
