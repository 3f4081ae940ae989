"""Administration: topics, groups, the broker; queues in `queue_admin.py`, webhooks in `webhook_admin.py`, sinks in `sink_admin.py`. One method for each verb of the protocol; results are those of `results.py`.

Reads are repeated over a lost connection. A change during which the connection is lost raises `ConnectionLost`: look before doing it again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from sparrow.base.errors import InvalidArgument
from sparrow.client.options import parse_start
from sparrow.client.queue_admin import QueueAdmin
from sparrow.client.results import (
    AccessRule,
    BrokerDescription,
    CommittedOffset,
    GroupDescription,
    GroupListing,
    PartitionOffset,
    Quota,
    TopicDescription,
    UserListing,
)
from sparrow.client.salting import ITERATIONS, MECHANISMS, hashed
from sparrow.client.sink_admin import SinkAdmin
from sparrow.client.verbs import result_as
from sparrow.client.webhook_admin import WebhookAdmin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparrow.client.options import StartAt

ConfigValue = str | int | float
"""A topic's setting; numbers and booleans are written as Kafka writes them."""

ALL_PARTITIONS = -1
BROKERS_CHOICE = -1


class Admin(QueueAdmin, WebhookAdmin, SinkAdmin):
    """`client.admin`. Every method raises `ConnectionLost`, `TimedOut`, `NotAuthorized`, and what is named besides."""

    # ── topics ────────────────────────────────────────────────────────────────────────────────────

    async def create_topic(
        self, name: str, *, partitions: int = BROKERS_CHOICE, config: Mapping[str, ConfigValue] | None = None
    ) -> TopicDescription:
        """Create a topic. Raises TopicExists, InvalidTopicName, InvalidConfig."""
        arguments = {"name": name, "partitions": partitions, "config": _texts(config or {})}
        return result_as(TopicDescription, await self._change("topic.create", arguments))

    async def ensure_topic(self, name: str) -> TopicDescription:
        """A topic, created if it is missing and the broker's policy allows. Raises UnknownTopic, InvalidTopicName."""
        return result_as(TopicDescription, await self._read("topic.ensure", {"name": name}))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and its records. Raises UnknownTopic."""
        await self._change("topic.delete", {"name": name})

    async def describe_topic(self, name: str) -> TopicDescription:
        """A topic with its partitions and configuration. Raises UnknownTopic."""
        return result_as(TopicDescription, await self._read("topic.describe", {"name": name}))

    async def list_topics(self, pattern: str = "*") -> list[TopicDescription]:
        """Topics whose name matches (`*` any run of characters, `?` one), without configuration."""
        answer = await self._read("topic.list", {"pattern": pattern})
        return result_as(list[TopicDescription], answer["topics"])

    async def configure_topic(
        self,
        name: str,
        set: Mapping[str, ConfigValue] | None = None,  # noqa: A002 - the verb's own word
        unset: Iterable[str] = (),
    ) -> TopicDescription:
        """Change settings; `unset` takes them back to their defaults. Raises UnknownTopic, InvalidConfig."""
        arguments = {"name": name, "set": _texts(set or {}), "unset": list(unset)}
        return result_as(TopicDescription, await self._change("topic.configure", arguments))

    async def add_partitions(self, name: str, total: int) -> TopicDescription:
        """Let a topic have `total` partitions. Raises UnknownTopic, InvalidArgument where it has more."""
        return result_as(
            TopicDescription, await self._change("topic.add_partitions", {"name": name, "total": total})
        )

    async def offsets(
        self, name: str, at: StartAt = "end", *, partition: int = ALL_PARTITIONS
    ) -> list[PartitionOffset]:
        """The offset of "beginning", "end" or a datetime in each partition, or in one. Raises UnknownTopic, UnknownPartition."""
        start = parse_start(at)
        if start.at == "offset":
            raise InvalidArgument(
                "offsets() looks up 'beginning', 'end' or a datetime; an offset is one already"
            )
        arguments = {"name": name, "partition": partition, "at": start.at, "value": start.value}
        answer = await self._read("topic.offsets", arguments)
        return result_as(list[PartitionOffset], answer["offsets"])

    async def delete_records(self, name: str, before: Mapping[int, int]) -> dict[int, int]:
        """Delete what lies before an offset, per partition; returns where each begins now. Raises UnknownTopic, OffsetOutOfRange."""
        answer = await self._change("topic.delete_records", {"name": name, "offsets": dict(before)})
        return result_as(dict[int, int], answer["starts"])

    # ── groups ────────────────────────────────────────────────────────────────────────────────────

    async def list_groups(self) -> list[GroupListing]:
        """All groups."""
        answer = await self._read("group.list", {})
        return result_as(list[GroupListing], answer["groups"])

    async def describe_group(self, group: str) -> GroupDescription:
        """A group with members, offsets and lag. Raises UnknownGroup."""
        return result_as(GroupDescription, await self._read("group.describe", {"group": group}))

    async def group_offsets(self, group: str, topics: Iterable[str] = ()) -> list[CommittedOffset]:
        """What a group has committed, in these topics or in all."""
        answer = await self._read("group.offsets", {"group": group, "topics": list(topics)})
        return result_as(list[CommittedOffset], answer["offsets"])

    async def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit {(topic, partition): next offset} from outside. Raises GroupNotEmpty while the group has members."""
        listed = [[topic, partition, offset, ""] for (topic, partition), offset in offsets.items()]
        await self._change("group.commit", {"group": group, "offsets": listed})

    async def reset_group(
        self, group: str, topic: str, to: StartAt, *, partitions: Iterable[int] = ()
    ) -> dict[int, int]:
        """Let a group without members go on at "beginning", "end", an offset or a datetime; returns the offsets by partition.

        Raises GroupNotEmpty, UnknownTopic.
        """
        start = parse_start(to)
        arguments = {
            "group": group,
            "topic": topic,
            "at": start.at,
            "value": start.value,
            "partitions": list(partitions),
        }
        answer = await self._change("group.reset", arguments)
        return {partition: offset for _, partition, offset in answer["offsets"]}

    async def delete_group(self, group: str) -> None:
        """Forget a group and its offsets. Raises UnknownGroup, GroupNotEmpty."""
        await self._change("group.delete", {"group": group})

    # ── users ─────────────────────────────────────────────────────────────────────────────────────

    async def list_users(self) -> list[UserListing]:
        """All users with their mechanisms."""
        answer = await self._read("user.list", {})
        return result_as(list[UserListing], answer["users"])

    async def create_user(
        self,
        name: str,
        password: str,
        *,
        mechanisms: Iterable[str] = MECHANISMS,
        iterations: int = ITERATIONS,
    ) -> None:
        """Make a user. The password is hashed here and not sent. Raises UserExists, UnacceptableCredential."""
        credentials = await asyncio.to_thread(hashed, password, mechanisms, iterations)
        await self._change("user.create", {"name": name, "credentials": credentials})

    async def set_password(
        self,
        name: str,
        password: str,
        *,
        mechanisms: Iterable[str] = MECHANISMS,
        iterations: int = ITERATIONS,
    ) -> None:
        """Give a user another password, for these mechanisms alone. Raises UnknownUser, UnacceptableCredential."""
        credentials = await asyncio.to_thread(hashed, password, mechanisms, iterations)
        await self._change("user.password", {"name": name, "credentials": credentials})

    async def delete_user(self, name: str) -> None:
        """Forget a user; who is connected stays so. Raises UnknownUser."""
        await self._change("user.delete", {"name": name})

    # ── access rules ──────────────────────────────────────────────────────────────────────────────

    async def create_access_rules(self, rules: Iterable[AccessRule]) -> None:
        """Make rules, all or none. Raises InvalidArgument."""
        await self._change("acl.create", {"rules": [msgspec.to_builtins(rule) for rule in rules]})

    async def list_access_rules(self, **selected: str) -> list[AccessRule]:
        """Rules whose fields have these values (as in `AccessRule`), or all.

        With pattern_type="Match" a `name` selects all rules that hold for the resource of this name.
        """
        answer = await self._read("acl.list", selected)
        return result_as(list[AccessRule], answer["rules"])

    async def delete_access_rules(self, **selected: str) -> list[AccessRule]:
        """Delete the rules that `list_access_rules` would list; without any field that is all. Returns what was deleted."""
        answer = await self._change("acl.delete", selected)
        return result_as(list[AccessRule], answer["rules"])

    # ── quotas ────────────────────────────────────────────────────────────────────────────────────

    async def alter_quota(self, entity: Mapping[str, str | None], values: Mapping[str, float | None]) -> None:
        """Set limits (None: remove) of an entity as in `Quota`. Raises InvalidArgument."""
        await self._change("quota.alter", {"entity": dict(entity), "values": dict(values)})

    async def list_quotas(self) -> list[Quota]:
        """All quotas."""
        answer = await self._read("quota.list", {})
        return result_as(list[Quota], answer["quotas"])

    # ── the broker ────────────────────────────────────────────────────────────────────────────────

    async def describe_broker(self) -> BrokerDescription:
        """Version, identity and counters of the broker."""
        answer = await self._read("broker.describe", {})
        return result_as(BrokerDescription, {**answer, "statistics": answer})


def _texts(config: Mapping[str, ConfigValue]) -> dict[str, ConfigValue]:
    """Settings as text; what is neither text nor number is left for the broker to refuse."""
    return {
        name: str(value).lower() if isinstance(value, int | float) else value
        for name, value in config.items()
    }
