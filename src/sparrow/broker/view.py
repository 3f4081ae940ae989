"""A view of a broker that another process runs: its users, rules, quotas and topics, from its
entries.

A standby of a cluster checks logins and answers where topics are with it. It changes nothing and
has no records. Services that are not named here do not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparrow.broker.broker import Broker
from sparrow.broker.composition import Parts
from sparrow.meta.frozen import FrozenMetaStore
from sparrow.storage.absent import AbsentLogs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparrow.broker.access.login_limits import LoginLimits
    from sparrow.broker.config import BrokerConfig
    from sparrow.meta.store import Entry

KINDS: Final = ("acl", "cluster", "config", "quota", "secret", "topic", "user")
"""The kinds of entries that a view needs."""


class BrokerView(Broker):
    """The services `topics`, `groups` (who coordinates), `users`, `acls`, `configs` and `quotas`.

    Args:
        config: of the broker that is viewed; nothing is created, whatever it says.
        entries: all entries of `KINDS`.
        login_limits: those of the view before this one, so that a change of the entries gives
            nobody more attempts.
    """

    def __init__(
        self, config: BrokerConfig, entries: Iterable[Entry], login_limits: LoginLimits | None = None
    ) -> None:
        self._absent = AbsentLogs()
        super().__init__(config=config, log_store=self._absent, meta_store=FrozenMetaStore(entries))
        if login_limits is not None:
            self.login_limits = login_limits

    async def start(self) -> None:
        """Read the entries.

        Raises:
            DirectoryUnreadable, NewerFormat: an entry cannot be read.
            Draining: the broker that is viewed has never started.
        """
        assert self._log_store is not None
        assert self._meta_store is not None
        self._logs = self._log_store
        parts = self.parts = Parts(self._foundation, self._log_store, self._meta_store)
        await parts.load_view()
        self.cluster_id = parts.cluster_id
        self.topics = parts.topics
        self.groups = parts.groups
        self.users = parts.users
        self.acls = parts.acls
        self.configs = parts.configs
        self.quotas = parts.quotas

    def follow(self, leader_epoch: int) -> None:
        """Set the epoch of the owner."""
        self._absent.leader_epoch = leader_epoch

    async def close(self) -> None:
        """Do nothing: nothing is open."""
