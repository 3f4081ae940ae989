"""Administration for threads. See `sparrow.client.admin` for what each method does and raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow.client.salting import ITERATIONS, MECHANISMS
from sparrow.sync.queue_admin import QueueAdmin
from sparrow.sync.sink_admin import SinkAdmin
from sparrow.sync.webhook_admin import WebhookAdmin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparrow.client.admin import ConfigValue
    from sparrow.client.options import StartAt
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


class Admin(QueueAdmin, WebhookAdmin, SinkAdmin):
    """`client.admin`."""

    def create_topic(
        self, name: str, *, partitions: int = -1, config: Mapping[str, ConfigValue] | None = None
    ) -> TopicDescription:
        """Create a topic."""
        return self._background.run(self._admin.create_topic(name, partitions=partitions, config=config))

    def ensure_topic(self, name: str) -> TopicDescription:
        """A topic, created if it is missing and the broker's policy allows."""
        return self._background.run(self._admin.ensure_topic(name))

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records."""
        return self._background.run(self._admin.delete_topic(name))

    def describe_topic(self, name: str) -> TopicDescription:
        """A topic with its partitions and configuration."""
        return self._background.run(self._admin.describe_topic(name))

    def list_topics(self, pattern: str = "*") -> list[TopicDescription]:
        """Topics whose name matches (`*` any run of characters, `?` one), without configuration."""
        return self._background.run(self._admin.list_topics(pattern))

    def configure_topic(
        self,
        name: str,
        set: Mapping[str, ConfigValue] | None = None,  # noqa: A002 - the verb's own word
        unset: Iterable[str] = (),
    ) -> TopicDescription:
        """Change settings; `unset` takes them back to their defaults."""
        return self._background.run(self._admin.configure_topic(name, set, unset))

    def add_partitions(self, name: str, total: int) -> TopicDescription:
        """Let a topic have `total` partitions."""
        return self._background.run(self._admin.add_partitions(name, total))

    def offsets(self, name: str, at: StartAt = "end", *, partition: int = -1) -> list[PartitionOffset]:
        """The offset of "beginning", "end" or a datetime in each partition, or in one."""
        return self._background.run(self._admin.offsets(name, at, partition=partition))

    def delete_records(self, name: str, before: Mapping[int, int]) -> dict[int, int]:
        """Delete what lies before an offset, per partition; returns where each begins now."""
        return self._background.run(self._admin.delete_records(name, before))

    def list_groups(self) -> list[GroupListing]:
        """All groups."""
        return self._background.run(self._admin.list_groups())

    def describe_group(self, group: str) -> GroupDescription:
        """A group with members, offsets and lag."""
        return self._background.run(self._admin.describe_group(group))

    def group_offsets(self, group: str, topics: Iterable[str] = ()) -> list[CommittedOffset]:
        """What a group has committed, in these topics or in all."""
        return self._background.run(self._admin.group_offsets(group, topics))

    def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit {(topic, partition): next offset} from outside."""
        return self._background.run(self._admin.commit(group, offsets))

    def reset_group(
        self, group: str, topic: str, to: StartAt, *, partitions: Iterable[int] = ()
    ) -> dict[int, int]:
        """Let a group without members go on at "beginning", "end", an offset or a datetime; returns the offsets by partition."""
        return self._background.run(self._admin.reset_group(group, topic, to, partitions=partitions))

    def delete_group(self, group: str) -> None:
        """Forget a group and its offsets."""
        return self._background.run(self._admin.delete_group(group))

    def list_users(self) -> list[UserListing]:
        """All users with their mechanisms."""
        return self._background.run(self._admin.list_users())

    def create_user(
        self,
        name: str,
        password: str,
        *,
        mechanisms: Iterable[str] = MECHANISMS,
        iterations: int = ITERATIONS,
    ) -> None:
        """Make a user. The password is hashed here and not sent."""
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
        """Give a user another password, for these mechanisms alone."""
        return self._background.run(
            self._admin.set_password(name, password, mechanisms=mechanisms, iterations=iterations)
        )

    def delete_user(self, name: str) -> None:
        """Forget a user; who is connected stays so."""
        return self._background.run(self._admin.delete_user(name))

    def create_access_rules(self, rules: Iterable[AccessRule]) -> None:
        """Make rules, all or none."""
        self._background.run(self._admin.create_access_rules(rules))

    def list_access_rules(self, **selected: str) -> list[AccessRule]:
        """Rules whose fields have these values, or all."""
        return self._background.run(self._admin.list_access_rules(**selected))

    def delete_access_rules(self, **selected: str) -> list[AccessRule]:
        """Delete the rules that `list_access_rules` would list; without any field that is all. Returns what was deleted."""
        return self._background.run(self._admin.delete_access_rules(**selected))

    def alter_quota(self, entity: Mapping[str, str | None], values: Mapping[str, float | None]) -> None:
        """Set limits (None: remove) of an entity."""
        self._background.run(self._admin.alter_quota(entity, values))

    def list_quotas(self) -> list[Quota]:
        """All quotas."""
        return self._background.run(self._admin.list_quotas())

    def describe_broker(self) -> BrokerDescription:
        """Version, identity and counters of the broker."""
        return self._background.run(self._admin.describe_broker())
