"""Endpoints, queues and rights that change during deliveries."""

from __future__ import annotations

import asyncio
import socket
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparrow.base.errors import PolicyViolation, StorageFailed, UnknownQueue, UnknownWebhook
from sparrow.broker.access.acls import AclBinding, PatternType, Permission
from sparrow.broker.access.authz import SYSTEM, Operation, Principal, ResourceType
from sparrow.broker.webhooks import registry
from sparrow.frontends.webhook import frontend
from tests.webhooks.conftest import LOCAL, Hooks
from tests.webhooks.endpoints import EndpointServer, Got, http_response


async def test_changed_endpoint_is_not_paused_by_responses_of_the_old_one(hooks: Hooks) -> None:
    asked, goes_on = asyncio.Event(), asyncio.Event()

    async def gone(_: Got) -> bytes:
        asked.set()
        await goes_on.wait()
        return http_response(410)

    await hooks.queue()
    async with EndpointServer(gone) as old, EndpointServer() as new:
        await hooks.hook(old.url)
        await hooks.publish(b"job")
        await asked.wait()
        await hooks.hook(new.url)
        goes_on.set()
        await hooks.done()
        assert new.bodies == [b"job"]
        assert not hooks.broker.webhooks.describe("jobs", "hook").is_paused


async def test_an_endpoint_that_is_gone_is_paused_as_soon_as_that_can_be_kept(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frontend, "_RETRY_S", 0.01)
    webhooks = hooks.broker.parts.webhook_registry
    keep, refused = webhooks.put, []

    async def refuse_twice(*arguments: Any) -> Any:
        if len(refused) < 2:
            refused.append(arguments)
            raise StorageFailed("the disk is full")
        return await keep(*arguments)

    await hooks.queue()
    async with EndpointServer([http_response(410), http_response()]) as server:
        await hooks.hook(server.url)
        monkeypatch.setattr(webhooks, "put", refuse_twice)
        await hooks.publish(b"job")
        await hooks.until(lambda: hooks.broker.webhooks.describe("jobs", "hook").is_paused)
        await hooks.broker.webhooks.resume("jobs", "hook")
        await hooks.done()
        assert server.bodies == [b"job", b"job"]


async def test_a_webhook_for_which_there_is_no_room_makes_no_subscriber(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "MAX_OF_QUEUE", 1)
    await hooks.queue()
    await hooks.hook("http://example.org/1")
    with pytest.raises(PolicyViolation):
        await hooks.broker.webhooks.put("jobs", "other", {"url": "http://example.org/2"}, add_subscriber=True)
    assert hooks.broker.queues.describe("jobs").policy["subscribers"] == []


async def test_a_deletion_that_was_cut_short_is_completed_when_it_is_asked_for_again(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    await hooks.queue()
    webhooks, queues = hooks.broker.webhooks, hooks.broker.parts.queue_registry
    await webhooks.put("jobs", "hook", {"url": "http://example.org/"}, add_subscriber=True)

    async def refuse(*_: Any, **__: Any) -> None:
        raise StorageFailed("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(queues, "set_subscriber", refuse)
        with pytest.raises(StorageFailed):
            await webhooks.delete("jobs", "hook", remove_subscriber=True)
    with pytest.raises(UnknownWebhook):
        await webhooks.delete("jobs", "hook")
    await webhooks.delete("jobs", "hook", remove_subscriber=True)
    assert hooks.broker.queues.describe("jobs").policy["subscribers"] == []
    with pytest.raises(UnknownWebhook):
        await webhooks.delete("jobs", "hook", remove_subscriber=True)


async def test_a_queue_that_is_deleted_meanwhile_gets_no_webhook(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    await hooks.queue()
    webhooks = hooks.broker.parts.webhook_registry
    write = webhooks._meta.write

    async def write_late(writes: Any) -> Any:
        monkeypatch.undo()
        await hooks.broker.queues.delete("jobs")
        return await write(writes)

    monkeypatch.setattr(webhooks._meta, "write", write_late)
    with pytest.raises(UnknownQueue):
        await hooks.hook("http://example.org/")
    await hooks.queue()
    assert list(webhooks) == []
    await hooks.stop()
    await hooks.start()
    assert list(hooks.broker.parts.webhook_registry) == []


async def test_a_topic_that_the_owner_may_not_read_ends_the_deliveries(tmp_path: Path) -> None:
    hooks = Hooks(tmp_path / "data")
    await hooks.start()
    ann = Principal("ann")
    await hooks.queue()
    rule = partial(AclBinding, ResourceType.TOPIC, "secrets", PatternType.LITERAL)
    rules = [
        rule("User:*", "*", Operation.ALL, Permission.ALLOW),
        rule(str(ann), "*", Operation.READ, Permission.DENY),
    ]
    await hooks.broker.acls.create(rules, principal=SYSTEM)
    async with EndpointServer() as server:
        await hooks.broker.webhooks.put("jobs", "hook", {"url": server.url}, principal=ann)
        await hooks.publish(b"job")
        await server.until(1)
        await hooks.broker.queues.add_topics("jobs", ["secrets"], principal=SYSTEM)
        await hooks.until(lambda: hooks.state().state == "refused")
        await hooks.publish(b"secret", topic="secrets")
        await hooks.publish(b"job")
        assert hooks.state().last_error
        assert hooks.statistics().unfinished == 2
        assert server.bodies == [b"job"]
        await hooks.stop()


@pytest.mark.slow
async def test_names_without_an_answer_delay_nothing_else(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, asked = threading.Event(), []
    ask = socket.getaddrinfo

    def hang(host: Any, *arguments: Any, **others: Any) -> Any:
        if isinstance(host, str) and host.endswith(".example"):
            asked.append(host)
            goes_on.wait(20)
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")
        return ask(host, *arguments, **others)

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    for number in range(40):
        name = f"q{number}"
        await hooks.queue(name)
        for port in (1, 2):
            await hooks.hook(f"http://silent{number}.example:{port}/", name=f"h{port}", queue=name)
        await hooks.publish(b"one", b"two", topic=name)
    await hooks.until(lambda: len(asked) >= 20)
    async with EndpointServer() as server, asyncio.timeout(5):
        await asyncio.to_thread(lambda: None)
        await hooks.queue()
        await hooks.hook(server.url)
        await hooks.publish(b"job")
        await hooks.done()
    assert len(asked) == len(set(asked)) <= 32
    await hooks.stop(0.1)
    goes_on.set()
    await hooks.start(LOCAL)
