"""Administration: topics, groups, users, webhooks, sinks, the broker; queues in `queue_admin.py`,
schedules in `schedule_admin.py`. One method for each operation of the protocol; results are those
of `results.py`.

Reads are repeated over a lost connection. A change during which the connection is lost raises
`ConnectionLost`: check whether it took effect before repeating it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from sparrow.base.errors import InvalidArgument
from sparrow.client.admin_base import result_as
from sparrow.client.options import parse_start
from sparrow.client.queue_admin import QueueAdmin
from sparrow.client.results import (
    AccessRule,
    BrokerDescription,
    BrokerHistory,
    BrokerStatus,
    CommittedOffset,
    GroupDescription,
    GroupListing,
    PartitionOffset,
    Quota,
    ReloadedConfig,
    RemovedBatch,
    SinkDescription,
    TopicDescription,
    UserListing,
    WebhookDescription,
)
from sparrow.client.schedule_admin import ScheduleAdmin
from sparrow.client.security import ITERATIONS, MECHANISMS, hash_password

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparrow.client.options import StartAt

ConfigValue = str | int | float
"""A topic's setting; numbers and booleans are written as Kafka writes them."""

SettingValue = str | int | float | Sequence[str] | Mapping[str, str] | None
"""A setting of a webhook, as `docs/webhooks.md` lists them."""

OLD_SECRETS_KEPT_MS = 86_400_000
ALL_PARTITIONS = -1
BROKERS_CHOICE = -1


class Admin(QueueAdmin, ScheduleAdmin):
    """The administration of a broker, `client.admin`. Every method may raise `ConnectionLost`,
    `TimedOut` and `NotAuthorized`, besides the errors that it names.
    """

    # ── topics ────────────────────────────────────────────────────────────────────────────────────

    async def create_topic(
        self, name: str, *, partitions: int = BROKERS_CHOICE, config: Mapping[str, ConfigValue] | None = None
    ) -> TopicDescription:
        """Create a topic. Raises TopicExists, InvalidTopicName, InvalidConfig."""
        arguments = {"name": name, "partitions": partitions, "config": _texts(config or {})}
        return result_as(TopicDescription, await self._change("topic.create", arguments))

    async def ensure_topic(self, name: str) -> TopicDescription:
        """Return a topic; create it if it is missing and the broker's policy allows. Raises
        UnknownTopic, InvalidTopicName.
        """
        return result_as(TopicDescription, await self._read("topic.ensure", {"name": name}))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and its records. Raises UnknownTopic."""
        await self._change("topic.delete", {"name": name})

    async def describe_topic(self, name: str) -> TopicDescription:
        """Return a topic with its partitions and configuration. Raises UnknownTopic."""
        return result_as(TopicDescription, await self._read("topic.describe", {"name": name}))

    async def list_topics(self, pattern: str = "*") -> list[TopicDescription]:
        """Return topics whose name matches (`*` any run of characters, `?` one), without
        configuration.
        """
        reply = await self._read("topic.list", {"pattern": pattern})
        return result_as(list[TopicDescription], reply["topics"])

    async def configure_topic(
        self,
        name: str,
        set: Mapping[str, ConfigValue] | None = None,  # noqa: A002 - the verb's own word
        unset: Iterable[str] = (),
    ) -> TopicDescription:
        """Change settings; `unset` resets settings to their defaults. Raises UnknownTopic,
        InvalidConfig.
        """
        arguments = {"name": name, "set": _texts(set or {}), "unset": list(unset)}
        return result_as(TopicDescription, await self._change("topic.configure", arguments))

    async def add_partitions(self, name: str, total: int) -> TopicDescription:
        """Raise the number of a topic's partitions to `total`. Raises UnknownTopic; InvalidArgument
        if it has more.
        """
        return result_as(
            TopicDescription, await self._change("topic.add_partitions", {"name": name, "total": total})
        )

    async def offsets(
        self, name: str, at: StartAt = "end", *, partition: int = ALL_PARTITIONS
    ) -> list[PartitionOffset]:
        """Return the offset of "beginning", "end" or a datetime in each partition, or in one.
        Raises UnknownTopic, UnknownPartition.
        """
        start = parse_start(at)
        if start.at == "offset":
            raise InvalidArgument(
                "offsets() looks up 'beginning', 'end' or a datetime; an offset is one already"
            )
        arguments = {"name": name, "partition": partition, "at": start.at, "value": start.value}
        reply = await self._read("topic.offsets", arguments)
        return result_as(list[PartitionOffset], reply["offsets"])

    async def delete_records(self, name: str, before: Mapping[int, int]) -> dict[int, int]:
        """Delete the records before an offset, per partition; return the new start offsets. Raises
        UnknownTopic, OffsetOutOfRange.
        """
        reply = await self._change("topic.delete_records", {"name": name, "offsets": dict(before)})
        return result_as(dict[int, int], reply["starts"])

    async def skip_batch(
        self, name: str, partition: int, offset: int, *, force: bool = False
    ) -> RemovedBatch:
        """Remove the records of the batch that contains `offset`, for every reader; an empty batch
        replaces it.

        This is for a batch that cannot be read. A readable one is removed only with `force`.

        Raises:
            UnknownTopic, UnknownPartition, OffsetOutOfRange, NotAuthorized
            InvalidArgument: there is no such batch, or it can be read and `force` is False.
        """
        arguments = {"name": name, "partition": partition, "offset": offset, "force": force}
        return result_as(RemovedBatch, (await self._change("topic.skip_batch", arguments))["removed"])

    # ── groups ────────────────────────────────────────────────────────────────────────────────────

    async def list_groups(self) -> list[GroupListing]:
        """Return all groups."""
        reply = await self._read("group.list", {})
        return result_as(list[GroupListing], reply["groups"])

    async def describe_group(self, group: str) -> GroupDescription:
        """Return a group with members, offsets and lag. Raises UnknownGroup."""
        return result_as(GroupDescription, await self._read("group.describe", {"group": group}))

    async def group_offsets(self, group: str, topics: Iterable[str] = ()) -> list[CommittedOffset]:
        """Return the committed offsets of a group, in these topics or in all."""
        reply = await self._read("group.offsets", {"group": group, "topics": list(topics)})
        return result_as(list[CommittedOffset], reply["offsets"])

    async def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit {(topic, partition): next offset} for a group without being a member. Raises
        GroupNotEmpty while the group has members.
        """
        listed = [[topic, partition, offset, ""] for (topic, partition), offset in offsets.items()]
        await self._change("group.commit", {"group": group, "offsets": listed})

    async def reset_group(
        self, group: str, topic: str, to: StartAt, *, partitions: Iterable[int] = ()
    ) -> dict[int, int]:
        """Reset a group without members to "beginning", "end", an offset or a datetime; return the
        offsets by partition.

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
        reply = await self._change("group.reset", arguments)
        return {partition: offset for _, partition, offset in reply["offsets"]}

    async def delete_group(self, group: str) -> None:
        """Delete a group and its offsets. Raises UnknownGroup, GroupNotEmpty."""
        await self._change("group.delete", {"group": group})

    # ── users ─────────────────────────────────────────────────────────────────────────────────────

    async def list_users(self) -> list[UserListing]:
        """Return all users with their mechanisms."""
        reply = await self._read("user.list", {})
        return result_as(list[UserListing], reply["users"])

    async def create_user(
        self,
        name: str,
        password: str,
        *,
        mechanisms: Iterable[str] = MECHANISMS,
        iterations: int = ITERATIONS,
    ) -> None:
        """Create a user. The password is hashed by the client and not sent. Raises UserExists,
        UnacceptableCredential.
        """
        credentials = await asyncio.to_thread(hash_password, password, mechanisms, iterations)
        await self._change("user.create", {"name": name, "credentials": credentials})

    async def set_password(
        self,
        name: str,
        password: str,
        *,
        mechanisms: Iterable[str] = MECHANISMS,
        iterations: int = ITERATIONS,
    ) -> None:
        """Change a user's password, for these mechanisms alone. Raises UnknownUser,
        UnacceptableCredential.
        """
        credentials = await asyncio.to_thread(hash_password, password, mechanisms, iterations)
        await self._change("user.password", {"name": name, "credentials": credentials})

    async def delete_user(self, name: str) -> None:
        """Delete a user; open connections of the user stay open. Raises UnknownUser."""
        await self._change("user.delete", {"name": name})

    # ── access rules ──────────────────────────────────────────────────────────────────────────────

    async def create_access_rules(self, rules: Iterable[AccessRule]) -> None:
        """Create access rules, all or none. Raises InvalidArgument."""
        await self._change("acl.create", {"rules": [msgspec.to_builtins(rule) for rule in rules]})

    async def list_access_rules(self, /, **selected: str) -> list[AccessRule]:
        """Return the rules whose fields have these values (as in `AccessRule`), or all.

        With pattern_type="Match" a `name` selects all rules that apply to the resource of this
        name.
        """
        reply = await self._read("acl.list", selected)
        return result_as(list[AccessRule], reply["rules"])

    async def delete_access_rules(self, /, **selected: str) -> list[AccessRule]:
        """Delete and return the rules that `list_access_rules` would return; without any field that
        is all rules.
        """
        reply = await self._change("acl.delete", selected)
        return result_as(list[AccessRule], reply["rules"])

    # ── quotas ────────────────────────────────────────────────────────────────────────────────────

    async def alter_quota(self, entity: Mapping[str, str | None], values: Mapping[str, float | None]) -> None:
        """Set limits (None: remove) of an entity as in `Quota`. Raises InvalidArgument."""
        await self._change("quota.alter", {"entity": dict(entity), "values": dict(values)})

    async def list_quotas(self) -> list[Quota]:
        """Return all quotas."""
        reply = await self._read("quota.list", {})
        return result_as(list[Quota], reply["quotas"])

    # ── webhooks ──────────────────────────────────────────────────────────────────────────────────

    async def put_webhook(
        self,
        /,
        queue: str,
        name: str,
        url: str | None = None,
        *,
        add_subscriber: bool = False,
        secrets: Iterable[str] | None = None,
        **settings: SettingValue,
    ) -> WebhookDescription:
        """Create a webhook of a queue, or change one. Settings that are not named stay, or get
        their defaults in a new webhook.

        Args:
            url: required for a new webhook.
            add_subscriber: make the webhook a subscriber of the queue, which then delivers every
                record to each of its subscribers.
            secrets: keys to sign with, the newest first; empty: do not sign. Left out, the broker
                generates one for a new webhook: it is in this result, and never shown again.
            settings: such as `format="json"`, `concurrency=4`, `rate=100`; None: the default.

        Raises:
            InvalidConfig: a setting is unknown or has a wrong value, or webhooks may not be sent to
                that address.
            InvalidArgument: the queue has subscribers, and the webhook is not one of them.
        """
        chosen: dict[str, Any] = dict(settings)
        if url is not None:
            chosen["url"] = url
        if secrets is not None:
            chosen["secrets"] = list(secrets)
        arguments = {"queue": queue, "name": name, "settings": chosen, "add_subscriber": add_subscriber}
        return result_as(WebhookDescription, await self._change("webhook.put", arguments))

    async def delete_webhook(self, queue: str, name: str, *, remove_subscriber: bool = False) -> None:
        """Delete a webhook. With `remove_subscriber`, an all-of queue also stops waiting for
        records that the webhook had not yet received.
        """
        arguments = {"queue": queue, "name": name, "remove_subscriber": remove_subscriber}
        await self._change("webhook.delete", arguments)

    async def describe_webhook(self, queue: str, name: str) -> WebhookDescription:
        """Return a webhook with its settings (no secrets) and statistics."""
        return result_as(
            WebhookDescription, await self._read("webhook.describe", {"queue": queue, "name": name})
        )

    async def list_webhooks(self, queue: str | None = None) -> list[WebhookDescription]:
        """Return the webhooks of a queue, or all that the user may describe."""
        reply = await self._read("webhook.list", {"queue": queue})
        return result_as(list[WebhookDescription], reply["webhooks"])

    async def pause_webhook(self, queue: str, name: str) -> WebhookDescription:
        """Pause a webhook until it is resumed, also over restarts of the broker."""
        return result_as(
            WebhookDescription, await self._change("webhook.pause", {"queue": queue, "name": name})
        )

    async def resume_webhook(self, queue: str, name: str) -> WebhookDescription:
        """Resume a webhook; one that is failing is tried again at once."""
        return result_as(
            WebhookDescription, await self._change("webhook.resume", {"queue": queue, "name": name})
        )

    async def rotate_webhook_secret(
        self, queue: str, name: str, secret: str | None = None, *, keep_ms: int = OLD_SECRETS_KEPT_MS
    ) -> WebhookDescription:
        """Sign with a new secret, and for `keep_ms` with the old ones, too. Without `secret` the
        broker generates one and returns it.

        Raises:
            InvalidConfig: the secret is invalid.
        """
        arguments = {"queue": queue, "name": name, "secret": secret, "keep_ms": keep_ms}
        return result_as(WebhookDescription, await self._change("webhook.rotate_secret", arguments))

    # ── sinks ─────────────────────────────────────────────────────────────────────────────────────

    async def list_sinks(self) -> list[SinkDescription]:
        """Return the sinks that the user may describe, by ID, without their stages."""
        reply = await self._read("sink.list", {})
        return result_as(list[SinkDescription], reply["sinks"])

    async def describe_sink(self, sink: str) -> SinkDescription:
        """Return a sink with its open stages. Raises UnknownSink."""
        return result_as(SinkDescription, await self._read("sink.describe", {"sink": sink}))

    async def delete_sink(self, sink: str) -> int:
        """Delete a sink with its record of committed batches, drop its open stages, and return
        their number. Raises UnknownSink.
        """
        reply = await self._change("sink.delete", {"sink": sink})
        return result_as(int, reply["aborted"])

    # ── the broker ────────────────────────────────────────────────────────────────────────────────

    async def describe_broker(self) -> BrokerDescription:
        """Return version, identity and counters of the broker."""
        reply = await self._read("broker.describe", {})
        return result_as(BrokerDescription, {**reply, "statistics": reply})

    async def broker_status(self) -> BrokerStatus:
        """Return the state of the broker on one screen: readiness, disk, rates, times of syncs, and
        what needs attention.
        """
        return result_as(BrokerStatus, await self._read("broker.status", {}))

    async def broker_history(
        self, series: Sequence[str] = (), *, span: str = "15m", queue: str = ""
    ) -> BrokerHistory:
        """Return samples of the last 15 minutes (`span` "15m", each 5 s) or 24 hours ("24h", each
        5 min), of the broker or of one queue. They are lost at a restart. Raises InvalidArgument,
        UnknownQueue.
        """
        arguments = {"series": list(series), "span": span, "queue": queue}
        return result_as(BrokerHistory, await self._read("broker.history", arguments))

    async def reload_config(self) -> ReloadedConfig:
        """Reload the broker's certificates, tokens and log level. Raises InvalidConfig; then
        nothing changed.
        """
        return result_as(ReloadedConfig, await self._change("broker.reload", {}))


def _texts(config: Mapping[str, ConfigValue]) -> dict[str, ConfigValue]:
    """Return settings as text; values that are neither text nor number are left for the broker to
    refuse.
    """
    return {
        name: str(value).lower() if isinstance(value, int | float) else value
        for name, value in config.items()
    }
