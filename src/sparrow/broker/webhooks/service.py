"""Operations on webhooks, with their access checks. The queue is the resource, of type GROUP by its
name.

    put                            ALTER_CONFIGS and READ on the queue, READ on its topics
    delete, pause, resume,
    rotate the secret              ALTER_CONFIGS on the queue
    describe, list                 DESCRIBE on the queue

An endpoint gets what its owner (who put it last) may read: deliveries stop when the owner loses the
right, and continue when it is given again.
"""

from __future__ import annotations

import os
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from sparrow.base.errors import InvalidArgument, InvalidConfig, UnknownWebhook
from sparrow.base.queue_policy import QueuePolicy
from sparrow.broker.access.authz import ANONYMOUS, Operation, Principal, ResourceType
from sparrow.broker.audit.audit import Audit
from sparrow.broker.audit.event import names, safe
from sparrow.broker.webhooks.addresses import AddressRules
from sparrow.broker.webhooks.description import describe
from sparrow.broker.webhooks.endpoint import (
    MAX_SECRETS,
    SYNCBROK,
    Endpoint,
    Secret,
    check_secret,
    check_secrets,
    make_secret,
    new_settings,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparrow.base.clock import Clock
    from sparrow.broker.access.access import Access
    from sparrow.broker.queues.queue import Queue
    from sparrow.broker.queues.registry import QueueRegistry
    from sparrow.broker.webhooks.endpoint import EndpointKey
    from sparrow.broker.webhooks.registry import WebhookRegistry
    from sparrow.model.webhooks import WebhookDescription, WebhookStatistics

_GROUP, _TOPIC = ResourceType.GROUP, ResourceType.TOPIC
KEPT_MS: Final = 86_400_000
"""Time for which an old secret signs beside the new one, by default."""
MAX_KEPT_MS: Final = 30 * 86_400_000
_SECRET_BYTES: Final = 32


class WebhookService:
    """`broker.webhooks`. Loop thread only."""

    def __init__(
        self,
        registry: WebhookRegistry,
        queues: QueueRegistry,
        clock: Clock,
        access: Access,
        audit: Audit | None = None,
    ) -> None:
        self._audit = audit or Audit()
        self._registry = registry
        self._queues = queues
        self._clock = clock
        self._access = access
        self.addresses = AddressRules()
        """The addresses to which webhooks may be sent; set by the webhook frontend."""

    # ── making and changing ───────────────────────────────────────────────────────────────────────

    async def put(
        self,
        queue: str,
        name: str,
        settings: Mapping[str, object],
        *,
        add_subscriber: bool = False,
        is_trusted: bool | None = None,
        principal: Principal = ANONYMOUS,
    ) -> WebhookDescription:
        """Create an endpoint, or change one: settings that are not named stay as they are, or (of a
        new one) have their defaults.

        A new one without `secrets` gets one, which only this response contains; with `secrets: []`
        nothing is signed. Putting the same again changes nothing.

        Args:
            add_subscriber: make the name a subscriber of the queue, which then delivers every
                record to each of its subscribers.
            is_trusted: whether it may have a private address. Only callers that act for the
                broker's owner set it, never clients. None: as before, as long as the URL stays.

        Raises:
            UnknownQueue, InvalidConfig, InvalidArgument, PolicyViolation, NotAuthorized
        """
        with self._audit.act(
            principal, "webhook.put", _GROUP, queue, webhook=safe(name), set=names([*settings])
        ):
            found = self._changeable(queue, principal)
            _check_name(name)
            if settings.get("secrets", ()) is None:  # as if it was not named: an empty list means unsigned
                settings = {each: value for each, value in settings.items() if each != "secrets"}
            self._check_address(self._registry.find(queue, name), settings.get("url"), is_trusted)
            made: list[str] = []
            _changed(None, found, name, settings=self._complete(found, name, settings), principal=principal)
            if self._registry.find(queue, name) is None:
                self._registry.check_room(queue)
            if add_subscriber:
                found = await self._queues.set_subscriber(queue, name, is_one=True)
            _check_subscriber(found, name)

            def make(before: Endpoint | None) -> Endpoint:
                if before is None and "secrets" not in settings and settings.get("format") != SYNCBROK:
                    made.append(make_secret(os.urandom(_SECRET_BYTES)))
                endpoint = _changed(before, found, name, settings=settings, principal=principal)
                if before is None:
                    endpoint = replace(
                        endpoint,
                        secrets=endpoint.secrets or tuple(map(Secret, made)),
                        created_ms=self._clock.wall_ms(),
                    )
                trust = _trust(before, endpoint.settings.url) if is_trusted is None else is_trusted
                return replace(endpoint, is_trusted=trust)

            return self._info(await self._registry.put(queue, name, make), "".join(made))

    def _complete(self, queue: Queue, name: str, settings: Mapping[str, object]) -> Mapping[str, object]:
        """Return the settings as they will be, so that they can be checked before anything is
        changed.
        """
        before = self._registry.find(queue.name, name)
        return settings if before is None else {**before.settings.values(), **settings}

    def _check_address(self, before: Endpoint | None, url: object, is_trusted: bool | None) -> None:
        """Check the host of a URL if it is an address; a name is checked at each connection."""
        trust = _trust(before, url) if is_trusted is None else is_trusted
        refusal = self.addresses.refusal_of_url(url, is_trusted=trust)
        if refusal:
            raise InvalidConfig(f"url: {refusal}")

    async def delete(
        self, queue: str, name: str, *, remove_subscriber: bool = False, principal: Principal = ANONYMOUS
    ) -> None:
        """Delete an endpoint. Its leased records are released.

        Args:
            remove_subscriber: remove the subscriber from an all-of queue, too; else its share waits
                for another one of its name.

        Raises:
            UnknownQueue, UnknownWebhook, NotAuthorized
        """
        with self._audit.act(principal, "webhook.delete", _GROUP, queue, webhook=safe(name)):
            self._access.require(principal, Operation.ALTER_CONFIGS, _GROUP, queue)
            subscribers = self._queues.get(queue).definition.policy.subscribers
            is_begun = remove_subscriber and name in subscribers and self._registry.find(queue, name) is None
            # else an earlier request removed it and was interrupted
            if not is_begun:
                await self._registry.delete(queue, name)
            if remove_subscriber:
                await self._queues.set_subscriber(queue, name, is_one=False)

    async def pause(self, queue: str, name: str, *, principal: Principal = ANONYMOUS) -> WebhookDescription:
        """Stop deliveries until `resume`, over restarts as well.

        Raises:
            UnknownQueue, UnknownWebhook, NotAuthorized
        """
        return await self._set_paused(queue, name, is_paused=True, principal=principal)

    async def resume(self, queue: str, name: str, *, principal: Principal = ANONYMOUS) -> WebhookDescription:
        """Deliver again, after `pause`, or because a failing endpoint works again.

        Raises:
            UnknownQueue, UnknownWebhook, NotAuthorized
        """
        return await self._set_paused(queue, name, is_paused=False, principal=principal)

    async def _set_paused(
        self, queue: str, name: str, *, is_paused: bool, principal: Principal
    ) -> WebhookDescription:
        action = "webhook.pause" if is_paused else "webhook.resume"
        with self._audit.act(principal, action, _GROUP, queue, webhook=safe(name)):
            self._access.require(principal, Operation.ALTER_CONFIGS, _GROUP, queue)
            self._queues.get(queue)
            endpoint = await self._registry.set_paused(queue, name, is_paused=is_paused)
            if not is_paused:
                self._registry.poke(endpoint.key)
            return self._info(endpoint)

    async def owner_deleted(self, user: str) -> None:
        """Pause the endpoints of a deleted user, so that nothing is sent in the user's name any
        more. Another principal that puts one becomes its owner.
        """
        for endpoint in self._registry.of_owner(Principal(user)):
            with suppress(UnknownWebhook):  # deleted meanwhile
                await self._registry.set_paused(
                    endpoint.queue, endpoint.name, is_paused=True, because=f"its owner {user!r} was deleted"
                )

    async def rotate_secret(
        self,
        queue: str,
        name: str,
        secret: str | None = None,
        *,
        keep_ms: int = KEPT_MS,
        principal: Principal = ANONYMOUS,
    ) -> WebhookDescription:
        """Sign with a new secret, which the response contains if the broker created it; the others
        sign beside it for `keep_ms`.

        Raises:
            UnknownQueue, UnknownWebhook, InvalidConfig, InvalidArgument, NotAuthorized
        """
        with self._audit.act(principal, "webhook.rotate_secret", _GROUP, queue, webhook=safe(name)):
            self._access.require(principal, Operation.ALTER_CONFIGS, _GROUP, queue)
            self._queues.get(queue)
            if not 0 <= keep_ms <= MAX_KEPT_MS:
                raise InvalidArgument(
                    f"keep_ms is {keep_ms}; old secrets are kept 0 to {MAX_KEPT_MS} ms (30 days)"
                )
            new = make_secret(os.urandom(_SECRET_BYTES)) if secret is None else check_secret(secret)
            now_ms = self._clock.wall_ms()

            def make(before: Endpoint | None) -> Endpoint:
                endpoint = before or self._registry.get(queue, name)
                end_ms = now_ms + keep_ms
                kept = [
                    replace(each, until_ms=min(each.until_ms or end_ms, end_ms))
                    for each in endpoint.live_secrets(now_ms)
                    if keep_ms and each.text != new
                ]
                return replace(endpoint, secrets=(Secret(new), *kept[: MAX_SECRETS - 1]))

            endpoint = await self._registry.put(queue, name, make)
            return self._info(endpoint, new if secret is None else "")

    # ── looking ───────────────────────────────────────────────────────────────────────────────────

    def describe(self, queue: str, name: str, *, principal: Principal = ANONYMOUS) -> WebhookDescription:
        """Return an endpoint, without its secrets.

        Raises:
            UnknownQueue, UnknownWebhook, NotAuthorized
        """
        self._access.require(principal, Operation.DESCRIBE, _GROUP, queue)
        self._queues.get(queue)
        return self._info(self._registry.get(queue, name))

    def listing(
        self, queue: str | None = None, *, principal: Principal = ANONYMOUS
    ) -> list[WebhookDescription]:
        """Return the endpoints of a queue or (None) of all queues that the principal may describe,
        by queue and name.

        Raises:
            UnknownQueue, NotAuthorized
        """
        if queue is not None:
            self._access.require(principal, Operation.DESCRIBE, _GROUP, queue)
            self._queues.get(queue)
            return [self._info(each) for each in self._registry.of_queue(queue)]
        allows = self._access.allows
        return [
            self._info(each)
            for each in sorted(self._registry, key=lambda each: each.key)
            if allows(principal, Operation.DESCRIBE, _GROUP, each.queue)
        ]

    # ── deliveries, for the webhook frontend, which acts for the broker ───────────────────────────

    def watch(self, watcher: Callable[[EndpointKey], None]) -> Callable[[], None]:
        """Call `watcher` after each change of an endpoint. Return a function that ends this."""
        return self._registry.watch(watcher)

    def endpoints(self, queue: str | None = None) -> list[Endpoint]:
        """Return the endpoints of a queue, or (None) all."""
        return list(self._registry) if queue is None else self._registry.of_queue(queue)

    def endpoint(self, key: EndpointKey) -> Endpoint | None:
        """Return an endpoint as it is now, or None."""
        return self._registry.find(*key)

    def statistics(self, key: EndpointKey) -> WebhookStatistics:
        """Return the statistics of an endpoint, which the webhook frontend writes."""
        return self._registry.statistics(key)

    async def pause_gone(self, endpoint: Endpoint, text: str) -> None:
        """Pause an endpoint that answered that it is gone, unless its definition has changed: then
        another endpoint is gone.

        Raises:
            UnknownWebhook, DiskFull, StorageFailed
        """

        def make(before: Endpoint | None) -> Endpoint:
            if before != endpoint:
                return before or self._registry.get(*endpoint.key)
            return replace(endpoint, is_paused=True, paused_because=f"the endpoint is gone: {text}")

        await self._registry.put(*endpoint.key, make)

    # ── inside ────────────────────────────────────────────────────────────────────────────────────

    def _info(self, endpoint: Endpoint, secret: str = "") -> WebhookDescription:
        statistics = copy(self._registry.statistics(endpoint.key))
        return describe(endpoint, statistics, self._clock.wall_ms(), secret)

    def _changeable(self, queue: str, principal: Principal) -> Queue:
        """Return the queue, if the principal may change and read it."""
        self._access.require(principal, Operation.ALTER_CONFIGS, _GROUP, queue)
        self._access.require(principal, Operation.READ, _GROUP, queue)
        found = self._queues.get(queue)
        if found.is_share_group:
            raise InvalidArgument(
                f"{queue!r} is a share group of Kafka clients, which has no other subscribers"
            )
        for topic in found.definition.topics:
            self._access.require(principal, Operation.READ, _TOPIC, topic)
        return found


def _changed(
    before: Endpoint | None,
    queue: Queue,
    name: str,
    *,
    settings: Mapping[str, object],
    principal: Principal,
) -> Endpoint:
    """Return the endpoint with other settings; the same object if they make no difference,
    regardless of the principal.
    """
    others = {each: value for each, value in settings.items() if each != "secrets"}
    secrets = check_secrets(settings.get("secrets", ()))
    if before is None:
        checked = new_settings(others)
        return Endpoint(queue.name, name, queue.definition.id, checked, secrets, principal)
    checked = before.settings.changed(others)
    named = [each.text for each in secrets]
    if "secrets" not in settings or named == [each.text for each in before.secrets]:
        secrets = before.secrets
    if checked == before.settings and secrets == before.secrets:
        return before
    return replace(before, settings=checked, secrets=secrets, owner=principal)


def _trust(before: Endpoint | None, url: object) -> bool:
    """Return True if an endpoint stays trusted when nothing is said of it: it was, and its URL
    stays.
    """
    return before is not None and before.is_trusted and before.settings.url == url


def _check_name(name: str) -> None:
    try:
        QueuePolicy().changed({"subscribers": [name]})
    except InvalidConfig:
        raise InvalidArgument(
            f"{name[:80]!r} is no name of a webhook: it has 1 to 200 printable characters without '/'"
        ) from None


def _check_subscriber(queue: Queue, name: str) -> None:
    subscribers = queue.definition.policy.subscribers
    if subscribers and name not in subscribers:
        raise InvalidArgument(
            f"queue {queue.name!r} has subscribers, of which {name[:80]!r} is none "
            f"({', '.join(subscribers)[:200]}): take one"
            " of those names, or say that it is to be added"
        )
