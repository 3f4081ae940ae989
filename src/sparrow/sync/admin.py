"""Administration for threads. See `sparrow.client.admin` for details and errors of each method."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.client.admin import OLD_SECRETS_KEPT_MS
from sparrow.client.security import ITERATIONS, MECHANISMS
from sparrow.sync.queue_admin import QueueAdmin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparrow.client.admin import ConfigValue, SettingValue
    from sparrow.client.options import StartAt
    from sparrow.client.results import (
        AccessRule,
        BrokerDescription,
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


class Admin(QueueAdmin):
    """The administration of a broker, `client.admin`."""

    def create_topic(
        self, name: str, *, partitions: int = -1, config: Mapping[str, ConfigValue] | None = None
    ) -> TopicDescription:
        """Create a topic."""
        return self._background.run(self._admin.create_topic(name, partitions=partitions, config=config))

    def ensure_topic(self, name: str) -> TopicDescription:
        """Return a topic; create it if it is missing and the broker's policy allows."""
        return self._background.run(self._admin.ensure_topic(name))

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records."""
        return self._background.run(self._admin.delete_topic(name))

    def describe_topic(self, name: str) -> TopicDescription:
        """Return a topic with its partitions and configuration."""
        return self._background.run(self._admin.describe_topic(name))

    def list_topics(self, pattern: str = "*") -> list[TopicDescription]:
        """Return topics whose name matches (`*` any run of characters, `?` one), without
        configuration.
        """
        return self._background.run(self._admin.list_topics(pattern))

    def configure_topic(
        self,
        name: str,
        set: Mapping[str, ConfigValue] | None = None,  # noqa: A002 - the verb's own word
        unset: Iterable[str] = (),
    ) -> TopicDescription:
        """Change settings; `unset` resets settings to their defaults."""
        return self._background.run(self._admin.configure_topic(name, set, unset))

    def add_partitions(self, name: str, total: int) -> TopicDescription:
        """Raise the number of a topic's partitions to `total`."""
        return self._background.run(self._admin.add_partitions(name, total))

    def offsets(self, name: str, at: StartAt = "end", *, partition: int = -1) -> list[PartitionOffset]:
        """Return the offset of "beginning", "end" or a datetime in each partition, or in one."""
        return self._background.run(self._admin.offsets(name, at, partition=partition))

    def delete_records(self, name: str, before: Mapping[int, int]) -> dict[int, int]:
        """Delete the records before an offset, per partition; return the new start offsets."""
        return self._background.run(self._admin.delete_records(name, before))

    def skip_batch(self, name: str, partition: int, offset: int, *, force: bool = False) -> RemovedBatch:
        """Remove the records of the batch that contains `offset`, for every reader."""
        return self._background.run(self._admin.skip_batch(name, partition, offset, force=force))

    def list_groups(self) -> list[GroupListing]:
        """Return all groups."""
        return self._background.run(self._admin.list_groups())

    def describe_group(self, group: str) -> GroupDescription:
        """Return a group with members, offsets and lag."""
        return self._background.run(self._admin.describe_group(group))

    def group_offsets(self, group: str, topics: Iterable[str] = ()) -> list[CommittedOffset]:
        """Return the committed offsets of a group, in these topics or in all."""
        return self._background.run(self._admin.group_offsets(group, topics))

    def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit {(topic, partition): next offset} for a group without being a member."""
        return self._background.run(self._admin.commit(group, offsets))

    def reset_group(
        self, group: str, topic: str, to: StartAt, *, partitions: Iterable[int] = ()
    ) -> dict[int, int]:
        """Reset a group without members to "beginning", "end", an offset or a datetime; return the
        offsets by partition.
        """
        return self._background.run(self._admin.reset_group(group, topic, to, partitions=partitions))

    def delete_group(self, group: str) -> None:
        """Delete a group and its offsets."""
        return self._background.run(self._admin.delete_group(group))

    def list_users(self) -> list[UserListing]:
        """Return all users with their mechanisms."""
        return self._background.run(self._admin.list_users())

    def create_user(
        self,
        name: str,
        password: str,
        *,
        mechanisms: Iterable[str] = MECHANISMS,
        iterations: int = ITERATIONS,
    ) -> None:
        """Create a user. The password is hashed by the client and not sent."""
        return self._background.run(
            self._admin.create_user(name, password, mechanisms=mechanisms, iterations=iterations)
        )

    def set_password(
        self,
        name: str,
        password: str,
        *,
        mechanisms: Iterable[str] = MECHANISMS,
        iterations: int = ITERATIONS,
    ) -> None:
        """Change a user's password, for these mechanisms alone."""
        return self._background.run(
            self._admin.set_password(name, password, mechanisms=mechanisms, iterations=iterations)
        )

    def delete_user(self, name: str) -> None:
        """Delete a user; open connections of the user stay open."""
        return self._background.run(self._admin.delete_user(name))

    def create_access_rules(self, rules: Iterable[AccessRule]) -> None:
        """Create access rules, all or none."""
        self._background.run(self._admin.create_access_rules(rules))

    def list_access_rules(self, **selected: str) -> list[AccessRule]:
        """Return the rules whose fields have these values, or all."""
        return self._background.run(self._admin.list_access_rules(**selected))

    def delete_access_rules(self, **selected: str) -> list[AccessRule]:
        """Delete and return the rules that `list_access_rules` would return; without any field that
        is all rules.
        """
        return self._background.run(self._admin.delete_access_rules(**selected))

    def alter_quota(self, entity: Mapping[str, str | None], values: Mapping[str, float | None]) -> None:
        """Set limits (None: remove) of an entity."""
        self._background.run(self._admin.alter_quota(entity, values))

    def list_quotas(self) -> list[Quota]:
        """Return all quotas."""
        return self._background.run(self._admin.list_quotas())

    def reload_config(self) -> ReloadedConfig:
        """Reload the broker's certificates, tokens and log level."""
        return self._background.run(self._admin.reload_config())

    def describe_broker(self) -> BrokerDescription:
        """Return version, identity and counters of the broker."""
        return self._background.run(self._admin.describe_broker())

    def put_webhook(
        self,
        queue: str,
        name: str,
        url: str | None = None,
        *,
        add_subscriber: bool = False,
        secrets: Iterable[str] | None = None,
        **settings: SettingValue,
    ) -> WebhookDescription:
        """Create a webhook of a queue, or change one."""
        return self._background.run(
            self._admin.put_webhook(
                queue, name, url, add_subscriber=add_subscriber, secrets=secrets, **settings
            )
        )

    def delete_webhook(self, queue: str, name: str, *, remove_subscriber: bool = False) -> None:
        """Delete a webhook."""
        self._background.run(self._admin.delete_webhook(queue, name, remove_subscriber=remove_subscriber))

    def describe_webhook(self, queue: str, name: str) -> WebhookDescription:
        """Return a webhook with its settings (no secrets) and statistics."""
        return self._background.run(self._admin.describe_webhook(queue, name))

    def list_webhooks(self, queue: str | None = None) -> list[WebhookDescription]:
        """Return the webhooks of a queue, or all that the user may describe."""
        return self._background.run(self._admin.list_webhooks(queue))

    def pause_webhook(self, queue: str, name: str) -> WebhookDescription:
        """Pause a webhook until it is resumed."""
        return self._background.run(self._admin.pause_webhook(queue, name))

    def resume_webhook(self, queue: str, name: str) -> WebhookDescription:
        """Resume a webhook; one that is failing is tried again at once."""
        return self._background.run(self._admin.resume_webhook(queue, name))

    def rotate_webhook_secret(
        self, queue: str, name: str, secret: str | None = None, *, keep_ms: int = OLD_SECRETS_KEPT_MS
    ) -> WebhookDescription:
        """Sign with a new secret, and for `keep_ms` with the old ones, too."""
        return self._background.run(self._admin.rotate_webhook_secret(queue, name, secret, keep_ms=keep_ms))

    def list_sinks(self) -> list[SinkDescription]:
        """Return the sinks that the user may describe, by ID, without their stages."""
        return self._background.run(self._admin.list_sinks())

    def describe_sink(self, sink: str) -> SinkDescription:
        """Return a sink with its open stages."""
        return self._background.run(self._admin.describe_sink(sink))

    def delete_sink(self, sink: str) -> int:
        """Delete a sink, drop its open stages, and return their number."""
        return self._background.run(self._admin.delete_sink(sink))
