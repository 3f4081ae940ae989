"""Reloading the configuration of a running broker: needs a right, and happens once at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidArgument
from sparrow.broker.access.authz import ANONYMOUS, Operation, Principal, ResourceType
from sparrow.broker.audit.event import names
from sparrow.model.access import CLUSTER_NAME

if TYPE_CHECKING:
    from sparrow.broker.access.access import Access
    from sparrow.broker.audit.audit import Audit
    from sparrow.model.broker import ReloadedConfig


class Reload:
    """The operation `broker.reload`. Loop thread only."""

    def __init__(self, access: Access, audit: Audit) -> None:
        self._audit = audit
        self._access = access
        self._lock = asyncio.Lock()
        self.work: Callable[[], Awaitable[ReloadedConfig]] | None = None
        """Does the work; set by the server that started the broker. None: there is no configuration
        to load.
        """

    async def __call__(self, *, principal: Principal = ANONYMOUS) -> ReloadedConfig:
        """Load certificates, tokens and log level again.

        Raises:
            NotAuthorized: needs ALTER_CONFIGS on the cluster.
            InvalidConfig: an option cannot be used; nothing was changed.
            InvalidArgument: this broker was started without a configuration.
        """
        with self._audit.act(principal, "broker.reload", ResourceType.CLUSTER, CLUSTER_NAME) as act:
            self._access.require_cluster(principal, Operation.ALTER_CONFIGS)
            if self.work is None:
                raise InvalidArgument(
                    "this broker has no configuration to load again: it was not started by `sparrow serve`"
                )
            async with self._lock:
                done = await self.work()
            act.note(loaded=names(done.loaded), needs_restart=names(done.needs_restart))
            return done
