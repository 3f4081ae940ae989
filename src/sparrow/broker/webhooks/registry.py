"""The endpoints of a broker by queue and name. They are deleted with their queue.

Changes are durable when a method returns, and run one after the other. `service.py` checks who may
change what; the webhook frontend watches for changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from sparrow.base.errors import PolicyViolation, SparrowError, UnknownQueue, UnknownWebhook
from sparrow.broker.changes import Changes
from sparrow.broker.webhooks import persistence
from sparrow.broker.webhooks.endpoint import EndpointKey
from sparrow.meta.store import Delete
from sparrow.model.webhooks import WebhookStatistics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparrow.broker.access.authz import Principal
    from sparrow.broker.queues.queue import Queue
    from sparrow.broker.queues.registry import QueueRegistry
    from sparrow.broker.webhooks.endpoint import Endpoint
    from sparrow.meta.store import MetaStore

_LOG = logging.getLogger(__name__)

Watcher = Callable[[EndpointKey], None]
"""Called after an endpoint was put, changed or deleted."""
MAX_ENDPOINTS: Final = 1000
"""Limit of a broker: each endpoint is a task and holds some connections."""
MAX_OF_QUEUE: Final = 100


class WebhookRegistry:
    """All endpoints. Loop thread only."""

    def __init__(self, meta: MetaStore, queues: QueueRegistry) -> None:
        self._meta = meta
        self._queues = queues
        self._endpoints: dict[EndpointKey, Endpoint] = {}
        self._statistics: dict[EndpointKey, WebhookStatistics] = {}
        self._changes = Changes(meta)
        self._watchers: list[Watcher] = []
        self._forgetting: set[asyncio.Task[None]] = set()
        queues.deleted.append(self._queue_deleted)

    def __len__(self) -> int:
        return len(self._endpoints)

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(list(self._endpoints.values()))

    async def load(self) -> None:
        """Read all endpoints, after the queues were loaded; delete those of missing queues.

        Raises:
            DirectoryUnreadable, NewerFormat
        """
        orphans = []
        for entry in await self._meta.scan(persistence.KIND):
            endpoint = persistence.decode(entry)
            queue = self._queues.definition(endpoint.queue)
            if queue is None or queue.id != endpoint.queue_id:
                orphans.append(Delete(persistence.KIND, entry.key))
            else:
                self._remember(endpoint)
        if orphans:
            await self._meta.write(orphans)

    async def close(self) -> None:
        """Wait for writes that are under way."""
        if self._forgetting:
            await asyncio.wait(set(self._forgetting))
        await self._changes.settle()

    # ── finding ───────────────────────────────────────────────────────────────────────────────────

    def find(self, queue: str, name: str) -> Endpoint | None:
        """Return the endpoint, or None."""
        return self._endpoints.get((queue, name))

    def get(self, queue: str, name: str) -> Endpoint:
        """Return the endpoint.

        Raises:
            UnknownWebhook
        """
        endpoint = self._endpoints.get((queue, name))
        if endpoint is None:
            raise UnknownWebhook(
                f"queue {queue[:200]!r} has no webhook {name[:200]!r}; `sparrow queue subscribers` "
                "lists those it has"
            )
        return endpoint

    def of_queue(self, queue: str) -> list[Endpoint]:
        """Return the endpoints of a queue, by name."""
        return sorted(
            (each for each in self._endpoints.values() if each.queue == queue), key=lambda e: e.name
        )

    def of_owner(self, owner: Principal) -> list[Endpoint]:
        """Return the endpoints that a principal put last, and that are not paused."""
        return [each for each in self._endpoints.values() if each.owner == owner and not each.is_paused]

    def statistics(self, key: EndpointKey) -> WebhookStatistics:
        """Return the statistics of an endpoint; the webhook frontend writes them."""
        return self._statistics.setdefault(key, WebhookStatistics())

    def poke(self, key: EndpointKey) -> None:
        """Make the webhook frontend look at an endpoint again, though nothing changed."""
        self._notify(key)

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher` after each change. Return a function that ends this."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    # ── changing ──────────────────────────────────────────────────────────────────────────────────

    async def put(self, queue: str, name: str, make: Callable[[Endpoint | None], Endpoint]) -> Endpoint:
        """Store what `make` returns for the present endpoint (None: there is none). An unchanged
        endpoint is not written.

        Raises:
            PolicyViolation: there are too many.
            UnknownQueue: the queue was deleted. DiskFull, StorageFailed, and what `make` raises.
        """

        async def change() -> Endpoint:
            before = self.find(queue, name)
            endpoint = make(before)
            if before is None:
                self.check_room(queue)
            if endpoint != before:
                self._check_queue(endpoint)
                await self._meta.write([persistence.entry_of(endpoint)])
                # deleted meanwhile: at the next start the entry is deleted
                self._check_queue(endpoint)
                self._remember(endpoint)
                self._notify(endpoint.key)
            return endpoint

        return await self._changes.carry_out(change)

    async def delete(self, queue: str, name: str) -> None:
        """Delete an endpoint.

        Raises:
            UnknownWebhook, DiskFull, StorageFailed
        """

        async def change() -> None:
            key = self.get(queue, name).key
            await self._meta.write([Delete(persistence.KIND, persistence.key_of(*key))])
            self._forget(key)

        await self._changes.carry_out(change)

    async def set_paused(self, queue: str, name: str, *, is_paused: bool, because: str = "") -> Endpoint:
        """Pause or resume deliveries.

        Raises:
            UnknownWebhook, DiskFull, StorageFailed
        """

        def make(before: Endpoint | None) -> Endpoint:
            return replace(before or self.get(queue, name), is_paused=is_paused, paused_because=because)

        return await self.put(queue, name, make)

    def _check_queue(self, endpoint: Endpoint) -> None:
        queue = self._queues.definition(endpoint.queue)
        if queue is None or queue.id != endpoint.queue_id:
            raise UnknownQueue(f"queue {endpoint.queue!r} was deleted")

    def check_room(self, queue: str) -> None:
        """Raise PolicyViolation if the queue, or the broker, can have no more endpoints."""
        if len(self._endpoints) >= MAX_ENDPOINTS:
            raise PolicyViolation(
                f"the broker has {MAX_ENDPOINTS} webhooks, which is as many as there may be"
            )
        if len(self.of_queue(queue)) >= MAX_OF_QUEUE:
            raise PolicyViolation(
                f"queue {queue!r} has {MAX_OF_QUEUE} webhooks, which is as many as there may be of one queue"
            )

    def _remember(self, endpoint: Endpoint) -> None:
        self._endpoints[endpoint.key] = endpoint
        self.statistics(endpoint.key)

    def _forget(self, key: EndpointKey) -> None:
        if self._endpoints.pop(key, None) is not None:
            self._statistics.pop(key, None)
            self._notify(key)

    def _notify(self, key: EndpointKey) -> None:
        for watcher in list(self._watchers):
            watcher(key)

    def _queue_deleted(self, queue: Queue) -> None:
        gone = [each.key for each in self.of_queue(queue.name)]
        for key in gone:
            self._forget(key)
        if gone:
            task = asyncio.get_running_loop().create_task(self._forget_entries(gone, queue.definition.id.hex))
            self._forgetting.add(task)
            task.add_done_callback(self._forgetting.discard)

    async def _forget_entries(self, keys: list[EndpointKey], queue_id: str) -> None:
        """Delete the entries of a deleted queue. A failure is repaired at the next start: the
        entries name a missing queue.
        """

        async def change() -> None:
            gone = [key for key in keys if key not in self._endpoints]
            await self._meta.write([Delete(persistence.KIND, persistence.key_of(*key)) for key in gone])

        try:
            await self._changes.carry_out(change)
        except SparrowError as error:
            _LOG.warning(
                "webhooks of the deleted queue %s are still in the meta store: %s", queue_id, error.text
            )
