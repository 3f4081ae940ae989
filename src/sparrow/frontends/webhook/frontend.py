"""The webhook door: one worker for each endpoint, as long as there is that endpoint, in this form.

An endpoint has a runner, a task that starts a worker, stops it when the definition changes, and starts the next. So changes of one endpoint are carried out one after the
other, and no worker of an old definition is ever beside one of a new. What a worker cannot go on with (its owner's right is gone, the queue has no subscriber of its name)
is tried again when something changed that it may depend on, and now and then.

The HTTP client is loaded, in a thread, when the first endpoint exists: a broker without webhooks pays nothing.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import InvalidConfig, NotAuthorized, SparrowError, Unavailable
from sparrow.broker.webhooks.addresses import Addresses
from sparrow.broker.webhooks.description import PAUSED, REFUSED, WAITING
from sparrow.frontends.webhook.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.broker.broker import Broker
    from sparrow.broker.queues.queue import Queue
    from sparrow.broker.webhooks.endpoint import Endpoint
    from sparrow.broker.webhooks.registry import Key
    from sparrow.frontends.webhook.worker import Poster, Worker

_LOG = logging.getLogger(__name__)
_CHANGE_TIMEOUT_S: Final = 15.0
"""How long what is under way may go on when an endpoint is changed, paused or deleted."""
_AGAIN_S: Final = 5.0
_AFTER_BUG_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Where webhooks may be sent to (`webhooks.allow`), how many requests at a time, and a PEM file of more authorities."""

    allow: tuple[str, ...] = ()
    max_connections: int = 1_000
    ca_path: str = ""


class WebhookFrontend:
    """Loop thread only.

    Args:
        resolver: an aiohttp resolver instead of the system's; for tests.

    Raises:
        InvalidConfig: what is allowed is no network or name.
    """

    def __init__(self, broker: Broker, *, settings: WebhookSettings, resolver: Any = None) -> None:
        self.broker = broker
        self._settings = settings
        self._resolver = resolver
        self._addresses = Addresses(settings.allow)
        self.memory = Memory()
        self._runners: dict[Key, _Runner] = {}
        self._poster: asyncio.Task[Any] | None = None
        self._unwatch: Callable[[], None] = lambda: None
        self._is_draining = False

    async def start(self) -> None:
        """Deliver to the endpoints that there are, and to those to come.

        Raises:
            InvalidConfig: the file of authorities cannot be used.
        """
        if self._settings.ca_path:
            await self.poster()
        self.broker.webhooks.addresses = self._addresses
        registry = self.broker.webhooks.registry
        self._unwatch = registry.watch(self._changed)
        self.broker.queues.registry.made.append(self._queue_made)
        for endpoint in registry:
            self._changed(endpoint.key)

    async def drain(self, timeout_s: float) -> None:
        """Begin nothing more, finish what is under way, or give it back when the time is over. Again: no effect."""
        if self._is_draining:
            return
        self._is_draining = True
        self._unwatch()
        made = self.broker.queues.registry.made
        if self._queue_made in made:
            made.remove(self._queue_made)
        await asyncio.gather(*(runner.stop(timeout_s) for runner in list(self._runners.values())))
        if self._poster is not None:
            try:
                await (await self._poster).close()
            except SparrowError as error:
                _LOG.debug("webhooks ended before they began: %s", error.text)

    async def poster(self) -> Poster:
        """What sends; loaded by the first who asks.

        Raises:
            InvalidConfig
        """
        if self._poster is None:
            self._poster = asyncio.get_running_loop().create_task(self._load())
        poster: Poster = await asyncio.shield(self._poster)
        return poster

    async def _load(self) -> Any:
        try:
            module = await asyncio.to_thread(importlib.import_module, "sparrow.frontends.webhook.poster")
        except ImportError as error:
            raise InvalidConfig(
                f"webhooks need a package that is not installed ({error}): install sparrow-broker[server]"
            ) from None
        tls = await asyncio.to_thread(module.tls_context, self._settings.ca_path)
        return module.Poster(
            self._addresses,
            max_connections=self._settings.max_connections,
            tls=tls,
            resolver=self._resolver,
        )

    def _changed(self, key: Key) -> None:
        """An endpoint was put, changed or deleted, or is to be tried now."""
        if self._is_draining:
            return
        runner = self._runners.get(key)
        if runner is None:
            runner = self._runners[key] = _Runner(self, key, partial(self._runners.pop, key, None))
        runner.look()

    def _queue_made(self, queue: Queue) -> None:
        """A queue was made or has another policy: who waits for a subscriber may go on."""
        for endpoint in self.broker.webhooks.registry.of_queue(queue.name):
            runner = self._runners.get(endpoint.key)
            if runner is not None and not runner.is_delivering:
                runner.look()


class _Runner:
    """Keeps the right worker of one endpoint running."""

    def __init__(self, door: WebhookFrontend, key: Key, over: Callable[[], object]) -> None:
        self._door = door
        self._key = key
        self._over = over
        self._look = asyncio.Event()
        self._worker: Worker | None = None
        self._stop_timeout_s = _CHANGE_TIMEOUT_S
        self._is_stopping = False
        self._pausing: asyncio.Task[None] | None = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def is_delivering(self) -> bool:
        return self._worker is not None

    def look(self) -> None:
        """The definition changed, or (if it did not) the endpoint is to be tried now."""
        worker = self._worker
        if worker is not None and worker.endpoint == self._endpoint():
            worker.poke()
        self._look.set()

    async def stop(self, timeout_s: float) -> None:
        """End, for good."""
        self._stop_timeout_s = timeout_s
        self._is_stopping = True
        self._look.set()
        await asyncio.wait([self._task])
        if self._pausing is not None:
            self._pausing.cancel()
            await asyncio.wait([self._pausing])

    def _endpoint(self) -> Endpoint | None:
        return self._door.broker.webhooks.registry.find(*self._key)

    async def _run(self) -> None:
        try:
            while not self._is_stopping and (endpoint := self._endpoint()) is not None:
                self._look.clear()
                try:
                    await self._serve(endpoint)
                except Exception:  # noqa: BLE001 - a bug must not end the deliveries for good
                    _LOG.exception(
                        "webhook %s of queue %r stopped; it is started again", *reversed(self._key)
                    )
                    await self._wait(_AFTER_BUG_S)
        finally:
            self._over()

    async def _serve(self, endpoint: Endpoint) -> None:
        """One worker, or none while it is paused, until the definition changes."""
        statistics = self._door.broker.webhooks.registry.statistics(self._key)
        statistics.until_ms = -1
        if endpoint.is_paused:
            statistics.state = PAUSED
            await self._look.wait()
            return
        try:
            await self._deliver(endpoint)
        except NotAuthorized as refusal:
            statistics.state, statistics.last_error = REFUSED, refusal.text
            await self._wait(_AGAIN_S)
        except SparrowError as error:
            is_news = error.text != statistics.last_error
            statistics.state, statistics.last_error = WAITING, error.text
            level = (
                logging.ERROR if is_news and isinstance(error, InvalidConfig | Unavailable) else logging.DEBUG
            )
            _LOG.log(level, "webhook %s of queue %r waits: %s", endpoint.name, endpoint.queue, error.text)
            await self._wait(_AGAIN_S)

    async def _deliver(self, endpoint: Endpoint) -> None:
        """Run a worker until the endpoint is another one.

        Raises:
            SparrowError: why it cannot go on.
        """
        from sparrow.frontends.webhook.worker import Worker

        poster = await self._door.poster()
        worker = self._worker = Worker(
            endpoint,
            self._door.broker,
            poster,
            memory=self._door.memory,
            statistics=self._door.broker.webhooks.registry.statistics(self._key),
            gone=partial(self._gone, endpoint),
        )
        running = asyncio.get_running_loop().create_task(worker.run())
        try:
            while not running.done() and self._is_current(endpoint):
                looking = asyncio.get_running_loop().create_task(self._look.wait())
                await asyncio.wait([running, looking], return_when=asyncio.FIRST_COMPLETED)
                looking.cancel()
                self._look.clear()
        finally:
            self._worker = None
            running.cancel()
            await asyncio.wait([running])
            await worker.stop(self._stop_timeout_s)
        if not running.cancelled():
            running.result()

    def _is_current(self, endpoint: Endpoint) -> bool:
        return not self._is_stopping and self._endpoint() == endpoint

    def _gone(self, endpoint: Endpoint, text: str) -> None:
        """The endpoint said that it is gone: nothing is sent to it until somebody resumes it."""
        _LOG.warning("webhook %s of queue %r is gone (%s) and is paused", endpoint.name, endpoint.queue, text)
        if self._pausing is None or self._pausing.done():
            self._pausing = asyncio.get_running_loop().create_task(self._pause(endpoint, text))

    async def _pause(self, endpoint: Endpoint, text: str) -> None:
        """Pause it, unless somebody changed it meanwhile: then it is another that is gone."""
        registry = self._door.broker.webhooks.registry

        def make(before: Endpoint | None) -> Endpoint:
            if before != endpoint:
                return before or registry.get(*endpoint.key)
            return replace(endpoint, is_paused=True, paused_because=f"the endpoint is gone: {text}")

        while self._endpoint() == endpoint:
            try:
                await registry.put(*endpoint.key, make)
            except SparrowError as error:
                _LOG.warning(
                    "webhook %s of queue %r cannot be paused: %s", *reversed(endpoint.key), error.text
                )
                await asyncio.sleep(_AGAIN_S)

    async def _wait(self, seconds: float) -> None:
        """So long, or until something changes."""
        try:
            async with asyncio.timeout(seconds):
                await self._look.wait()
        except TimeoutError:
            return
