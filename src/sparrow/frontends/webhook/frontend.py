"""The webhook frontend: it runs one worker for each endpoint, with the current definition of the
endpoint.

Each endpoint has a runner: a task that starts a worker, stops it when the definition changes, and
starts the next. So changes of one endpoint are carried out one after the other, and workers of an
old and a new definition never run at the same time. If a worker cannot go on (its owner lost a
right, or the queue has no subscriber of its name), it is tried again after changes that may matter,
and periodically.

The HTTP client is imported, in a thread, when the first endpoint exists. A broker without webhooks
does not load it.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import InvalidConfig, NotAuthorized, SparrowError, Unavailable
from sparrow.broker.webhooks.addresses import AddressRules
from sparrow.broker.webhooks.description import PAUSED, REFUSED, WAITING
from sparrow.frontends.webhook.memory import RecordMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.broker.broker import Broker
    from sparrow.broker.queues.queue import Queue
    from sparrow.broker.webhooks.endpoint import Endpoint, EndpointKey
    from sparrow.frontends.webhook.settings import WebhookSettings
    from sparrow.frontends.webhook.worker import EndpointWorker, RequestSender

_LOG = logging.getLogger(__name__)
_CHANGE_TIMEOUT_S: Final = 15.0
"""Time that running requests have when an endpoint is changed, paused or deleted."""
_RETRY_S: Final = 5.0
_AFTER_BUG_S: Final = 5.0


class WebhookFrontend:
    """Runs a worker for each webhook endpoint. Loop thread only.

    Args:
        resolver: an aiohttp resolver instead of the system's; for tests.

    Raises:
        InvalidConfig: an allowed target is no network and no name.
    """

    def __init__(self, broker: Broker, *, settings: WebhookSettings, resolver: Any = None) -> None:
        self.broker = broker
        self._settings = settings
        self._resolver = resolver
        self._addresses = AddressRules(settings.allow)
        self.memory = RecordMemory()
        self._runners: dict[EndpointKey, _Runner] = {}
        self._poster: asyncio.Task[Any] | None = None
        self._watches: list[Callable[[], None]] = []
        self._is_draining = False

    async def start(self) -> None:
        """Deliver to all endpoints, current and future.

        Raises:
            InvalidConfig: the file of authorities cannot be used.
        """
        if self._settings.ca_path:
            await self.poster()
        self.broker.webhooks.addresses = self._addresses
        self._watches = [
            self.broker.webhooks.watch(self._changed),
            self.broker.queues.watch(self._queue_made),
        ]
        for endpoint in self.broker.webhooks.endpoints():
            self._changed(endpoint.key)

    async def drain(self, timeout_s: float) -> None:
        """Send nothing more, and finish running requests; after `timeout_s` release their records.
        Calling it again has no effect.
        """
        if self._is_draining:
            return
        self._is_draining = True
        for stop_watching in self._watches:
            stop_watching()
        await asyncio.gather(*(runner.stop(timeout_s) for runner in list(self._runners.values())))
        if self._poster is not None:
            try:
                await (await self._poster).close()
            except SparrowError as error:
                _LOG.debug("webhooks ended before they began: %s", error.text)

    async def poster(self) -> RequestSender:
        """Return the HTTP client; the first call loads it.

        Raises:
            InvalidConfig
        """
        if self._poster is None:
            self._poster = asyncio.get_running_loop().create_task(self._load())
        poster: RequestSender = await asyncio.shield(self._poster)
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

    def _changed(self, key: EndpointKey) -> None:
        """Start or notify the runner of an endpoint that was created, changed, deleted or is to be
        tried now.
        """
        if self._is_draining:
            return
        runner = self._runners.get(key)
        if runner is None:
            runner = self._runners[key] = _Runner(self, key, partial(self._runners.pop, key, None))
        runner.check()

    def _queue_made(self, queue: Queue) -> None:
        """Notify runners that wait for a subscriber: a queue was created or its policy changed."""
        for endpoint in self.broker.webhooks.endpoints(queue.name):
            runner = self._runners.get(endpoint.key)
            if runner is not None and not runner.is_delivering:
                runner.check()


class _Runner:
    """Keeps the right worker of one endpoint running."""

    def __init__(self, frontend: WebhookFrontend, key: EndpointKey, on_end: Callable[[], object]) -> None:
        self._frontend = frontend
        self._key = key
        self._on_end = on_end
        self._has_changed = asyncio.Event()
        self._worker: EndpointWorker | None = None
        self._stop_timeout_s = _CHANGE_TIMEOUT_S
        self._is_stopping = False
        self._pausing: asyncio.Task[None] | None = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def is_delivering(self) -> bool:
        return self._worker is not None

    def check(self) -> None:
        """Check the definition again; if it is unchanged, try the endpoint now."""
        worker = self._worker
        if worker is not None and worker.endpoint == self._endpoint():
            worker.retry_now()
        self._has_changed.set()

    async def stop(self, timeout_s: float) -> None:
        """End the runner for good."""
        self._stop_timeout_s = timeout_s
        self._is_stopping = True
        self._has_changed.set()
        await asyncio.wait([self._task])
        if self._pausing is not None:
            self._pausing.cancel()
            await asyncio.wait([self._pausing])

    def _endpoint(self) -> Endpoint | None:
        return self._frontend.broker.webhooks.endpoint(self._key)

    async def _run(self) -> None:
        try:
            while not self._is_stopping and (endpoint := self._endpoint()) is not None:
                self._has_changed.clear()
                try:
                    await self._serve(endpoint)
                except Exception:  # noqa: BLE001 - a bug must not end the deliveries for good
                    _LOG.exception(
                        "webhook %s of queue %r stopped; it is started again", *reversed(self._key)
                    )
                    await self._wait(_AFTER_BUG_S)
        finally:
            self._on_end()

    async def _serve(self, endpoint: Endpoint) -> None:
        """Run one worker, or none while the endpoint is paused, until the definition changes."""
        statistics = self._frontend.broker.webhooks.statistics(self._key)
        statistics.until_ms = -1
        if endpoint.is_paused:
            statistics.state = PAUSED
            await self._has_changed.wait()
            return
        try:
            await self._deliver(endpoint)
        except NotAuthorized as refusal:
            statistics.state, statistics.last_error = REFUSED, refusal.text
            await self._wait(_RETRY_S)
        except SparrowError as error:
            is_news = error.text != statistics.last_error
            statistics.state, statistics.last_error = WAITING, error.text
            level = (
                logging.ERROR if is_news and isinstance(error, InvalidConfig | Unavailable) else logging.DEBUG
            )
            _LOG.log(level, "webhook %s of queue %r waits: %s", endpoint.name, endpoint.queue, error.text)
            await self._wait(_RETRY_S)

    async def _deliver(self, endpoint: Endpoint) -> None:
        """Run a worker until the definition changes.

        Raises:
            SparrowError: the worker cannot go on.
        """
        from sparrow.frontends.webhook.worker import EndpointWorker

        poster = await self._frontend.poster()
        worker = self._worker = EndpointWorker(
            endpoint,
            self._frontend.broker,
            poster,
            memory=self._frontend.memory,
            statistics=self._frontend.broker.webhooks.statistics(self._key),
            gone=partial(self._gone, endpoint),
        )
        running = asyncio.get_running_loop().create_task(worker.run())
        try:
            while not running.done() and self._is_current(endpoint):
                waiting = asyncio.get_running_loop().create_task(self._has_changed.wait())
                await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                self._has_changed.clear()
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
        """Pause an endpoint that answered that it is gone: it gets nothing until it is resumed."""
        _LOG.warning("webhook %s of queue %r is gone (%s) and is paused", endpoint.name, endpoint.queue, text)
        if self._pausing is None or self._pausing.done():
            self._pausing = asyncio.get_running_loop().create_task(self._pause(endpoint, text))

    async def _pause(self, endpoint: Endpoint, text: str) -> None:
        """Pause the endpoint, unless its definition has changed: then another endpoint is gone."""
        while self._endpoint() == endpoint:
            try:
                await self._frontend.broker.webhooks.pause_gone(endpoint, text)
            except SparrowError as error:
                _LOG.warning(
                    "webhook %s of queue %r cannot be paused: %s", *reversed(endpoint.key), error.text
                )
                await asyncio.sleep(_RETRY_S)

    async def _wait(self, seconds: float) -> None:
        """Wait for `seconds`, or until something changes."""
        try:
            async with asyncio.timeout(seconds):
                await self._has_changed.wait()
        except TimeoutError:
            return
