"""Operations on webhooks: rights, persistence, and changes of the queue and the subscriber of an
endpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import combinations
from pathlib import Path

import pytest

from sparrow.base.clock import ManualClock
from sparrow.base.errors import (
    InvalidArgument,
    InvalidConfig,
    NotAuthorized,
    NotFound,
    PolicyViolation,
    UnknownQueue,
    UnknownWebhook,
)
from sparrow.broker.access.acls import AclBinding, AclFilter, PatternType, Permission
from sparrow.broker.access.authz import SYSTEM, Operation, Principal, ResourceType
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.webhooks import persistence, registry
from sparrow.broker.webhooks.endpoint import make_secret
from sparrow.broker.webhooks.service import WebhookService
from sparrow.frontends.publisher import Message, Publisher
from sparrow.frontends.webhook.frontend import WebhookFrontend
from tests.webhooks.conftest import LOCAL, Hooks
from tests.webhooks.endpoints import EndpointServer

URL = "https://hooks.example/"
ALICE = Principal("alice")
GROUP, TOPIC = ResourceType.GROUP, ResourceType.TOPIC
READ, DESCRIBE, ALTER_CONFIGS = Operation.READ, Operation.DESCRIBE, Operation.ALTER_CONFIGS
Right = tuple[ResourceType, str, Operation]


def rule(right: Right) -> AclBinding:
    kind, name, operation = right
    return AclBinding(kind, name, PatternType.LITERAL, "User:alice", "*", operation, Permission.ALLOW)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    config = BrokerConfig(default_partitions=1, allow_unnamed_resources=False)
    async with Broker(tmp_path / "data", config=config, clock=ManualClock()) as running:
        await running.queues.create("jobs", ["one", "two"], principal=SYSTEM)
        await running.webhooks.put("jobs", "hook", {"url": URL}, principal=SYSTEM)
        yield running


# ── rights ────────────────────────────────────────────────────────────────────────────────────────


async def described(webhooks: WebhookService, queue: str) -> None:
    webhooks.describe(queue, "hook", principal=ALICE)


async def listed(webhooks: WebhookService, queue: str) -> None:
    webhooks.listing(queue, principal=ALICE)


CHANGE = {(GROUP, "jobs", ALTER_CONFIGS)}
PUT = {*CHANGE, (GROUP, "jobs", READ), (TOPIC, "one", READ), (TOPIC, "two", READ)}
Act = Callable[[WebhookService, str], Awaitable[object]]
CASES: dict[str, tuple[set[Right], Act]] = {
    "put": (PUT, lambda w, queue: w.put(queue, "new", {"url": URL}, principal=ALICE)),
    "delete": (CHANGE, lambda w, queue: w.delete(queue, "hook", principal=ALICE)),
    "pause": (CHANGE, lambda w, queue: w.pause(queue, "hook", principal=ALICE)),
    "resume": (CHANGE, lambda w, queue: w.resume(queue, "hook", principal=ALICE)),
    "rotate_secret": (CHANGE, lambda w, queue: w.rotate_secret(queue, "hook", principal=ALICE)),
    "describe": ({(GROUP, "jobs", DESCRIBE)}, described),
    "listing": ({(GROUP, "jobs", DESCRIBE)}, listed),
}


@pytest.mark.parametrize("verb", CASES)
async def test_an_operation_requires_exactly_its_rights(broker: Broker, verb: str) -> None:
    rights, act = CASES[verb]
    for some in combinations(sorted(rights, key=str), len(rights) - 1):
        await broker.acls.create([rule(each) for each in some], principal=SYSTEM)
        with pytest.raises(NotAuthorized):
            await act(broker.webhooks, "jobs")
        with pytest.raises(NotAuthorized):
            await act(broker.webhooks, "other")
        await broker.acls.delete([AclFilter()], principal=SYSTEM)
    await broker.acls.create([rule(each) for each in rights], principal=SYSTEM)
    await act(broker.webhooks, "jobs")


async def test_a_listing_of_all_shows_what_may_be_described(broker: Broker) -> None:
    await broker.queues.create("secret", principal=SYSTEM)
    await broker.webhooks.put("secret", "hook", {"url": URL}, principal=SYSTEM)
    assert broker.webhooks.listing(principal=ALICE) == []
    await broker.acls.create([rule((GROUP, "jobs", DESCRIBE))], principal=SYSTEM)
    assert [each.queue for each in broker.webhooks.listing(principal=ALICE)] == ["jobs"]
    assert len(broker.webhooks.listing(principal=SYSTEM)) == 2


async def test_deliveries_end_with_the_owners_right_and_go_on_when_it_is_given_again(tmp_path: Path) -> None:
    config = BrokerConfig(default_partitions=1, allow_unnamed_resources=False)
    async with Broker(tmp_path / "data", config=config) as broker, EndpointServer() as server:
        await broker.queues.create("jobs", principal=SYSTEM)
        frontend = WebhookFrontend(broker, settings=LOCAL)
        await frontend.start()
        rights = [
            rule((GROUP, "jobs", ALTER_CONFIGS)),
            rule((GROUP, "jobs", READ)),
            rule((TOPIC, "jobs", READ)),
        ]
        await broker.acls.create(rights, principal=SYSTEM)
        await broker.webhooks.put("jobs", "hook", {"url": server.url}, principal=ALICE)
        publisher = Publisher(broker)
        await publisher.publish("jobs", [Message(b"1")], principal=SYSTEM)
        await server.until(1)

        def state() -> str:
            return broker.webhooks.describe("jobs", "hook", principal=SYSTEM).statistics.state

        async with asyncio.timeout(10):
            await broker.acls.delete([AclFilter(resource_type=TOPIC)], principal=SYSTEM)
            while state() != "refused":
                await asyncio.sleep(0.01)
            await publisher.publish("jobs", [Message(b"2")], principal=SYSTEM)
            await broker.acls.create(rights, principal=SYSTEM)
            await broker.webhooks.resume("jobs", "hook", principal=ALICE)
            await server.until(2)
        await frontend.drain(5)
    assert server.bodies == [b"1", b"2"]


# ── put ───────────────────────────────────────────────────────────────────────────────────────────


async def test_to_put_the_same_again_writes_nothing(hooks: Hooks) -> None:
    await hooks.queue()
    settings = {"url": URL, "headers": {"X-A": "b"}, "rate": 5, "secrets": [make_secret(b"x" * 32)]}
    made = await hooks.broker.webhooks.put("jobs", "hook", settings)
    version = await version_of(hooks, "jobs/hook")
    assert await hooks.broker.webhooks.put("jobs", "hook", settings) == made
    assert await hooks.broker.webhooks.put("jobs", "hook", settings, principal=Principal("bob")) == made
    assert await hooks.broker.webhooks.put("jobs", "hook", {}) == made
    assert await version_of(hooks, "jobs/hook") == version
    changed = await hooks.broker.webhooks.put("jobs", "hook", {"rate": 6}, principal=Principal("bob"))
    assert changed.owner == "User:bob"
    assert await version_of(hooks, "jobs/hook") == version + 1


async def version_of(hooks: Hooks, key: str) -> int:
    entry = await hooks.broker._meta.get(persistence.KIND, key)
    assert entry is not None
    return entry.version


async def test_webhook_is_there_after_a_restart(hooks: Hooks) -> None:
    await hooks.queue()
    made = await hooks.hook(URL, format="json", headers={"X-A": "b"})
    assert made.settings["headers"] == {"X-A": "hidden"}
    before = hooks.broker.parts.webhook_registry.get("jobs", "hook")
    await hooks.stop()
    await hooks.start()
    assert hooks.broker.parts.webhook_registry.get("jobs", "hook") == before


async def test_secrets_are_made_given_or_left_out(hooks: Hooks) -> None:
    await hooks.queue()
    assert (await hooks.hook(URL, "made")).secret
    given = await hooks.hook(URL, "given", secrets=[make_secret(b"x" * 32), make_secret(b"y" * 32)])
    assert (given.secret, given.secrets) == ("", [0, 0])
    assert (await hooks.hook(URL, "none", secrets=[])).secrets == []
    assert (await hooks.hook(URL, "none", rate=4)).secrets == []
    assert (await hooks.hook(URL, "syncbrok", format="syncbrok")).secrets == []
    assert (await hooks.hook(URL, "made", rate=5)).secret == ""
    assert (await hooks.hook(URL, "made", secrets=[])).secrets == []


async def test_nothing_but_an_empty_list_leaves_deliveries_unsigned(hooks: Hooks) -> None:
    await hooks.queue()
    made = await hooks.hook(URL, "made", secrets=None)
    assert made.secret
    assert (await hooks.hook(URL, "made", secrets=None)).secrets == [0]
    for wrong in ("", 0, False, {}):
        with pytest.raises(InvalidConfig, match="secret"):
            await hooks.hook(URL, "made", secrets=wrong)
    assert hooks.broker.webhooks.describe("jobs", "made").secrets == [0]


async def test_refused_webhook_changes_nothing(hooks: Hooks) -> None:
    await hooks.queue()
    await hooks.queue("all", subscribers=["a"])
    put = hooks.broker.webhooks.put
    with pytest.raises(InvalidConfig, match="needs a url"):
        await put("jobs", "hook", {}, add_subscriber=True)
    with pytest.raises(InvalidConfig, match="no setting 'colour'"):
        await put("jobs", "hook", {"url": URL, "colour": 1}, add_subscriber=True)
    with pytest.raises(InvalidArgument, match="no name"):
        await put("jobs", "a/b", {"url": URL}, add_subscriber=True)
    with pytest.raises(InvalidArgument, match="subscribers, of which 'b' is none"):
        await put("all", "b", {"url": URL})
    with pytest.raises(UnknownQueue):
        await put("missing", "hook", {"url": URL})
    assert hooks.broker.webhooks.listing() == []
    assert hooks.broker.queues.describe("jobs").policy["subscribers"] == []
    await put("all", "a", {"url": URL})


async def test_a_missing_thing_is_reported(hooks: Hooks) -> None:
    await hooks.queue()
    webhooks = hooks.broker.webhooks
    for act in (webhooks.delete, webhooks.pause, webhooks.resume, webhooks.rotate_secret):
        with pytest.raises(UnknownWebhook):
            await act("jobs", "hook")
        with pytest.raises(UnknownQueue):
            await act("missing", "hook")
    for queue in ("jobs", "missing"):
        with pytest.raises(NotFound):
            webhooks.describe(queue, "hook")
    with pytest.raises(UnknownQueue):
        webhooks.listing("missing")


async def test_there_are_only_so_many(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MAX_OF_QUEUE", 2)
    monkeypatch.setattr(registry, "MAX_ENDPOINTS", 3)
    for queue in ("jobs", "others"):
        await hooks.queue(queue)
    await hooks.hook(URL, "1")
    await hooks.hook(URL, "2")
    with pytest.raises(PolicyViolation, match="of one queue"):
        await hooks.hook(URL, "3")
    await hooks.hook(URL, "2", rate=1)
    await hooks.hook(URL, "1", "others")
    with pytest.raises(PolicyViolation, match="the broker has"):
        await hooks.hook(URL, "2", "others")


async def test_rotating_keeps_a_few_secrets_each_until_its_time(broker: Broker) -> None:
    clock = broker.clock
    assert isinstance(clock, ManualClock)
    rotate = broker.webhooks.rotate_secret
    first = await rotate("jobs", "hook", keep_ms=1000, principal=SYSTEM)
    assert first.secrets == [0, clock.wall_ms() + 1000]
    clock.advance(0.5)
    second = await rotate("jobs", "hook", keep_ms=10_000, principal=SYSTEM)
    assert second.secrets == [0, clock.wall_ms() + 10_000, clock.wall_ms() + 500]
    clock.advance(0.5)
    described = broker.webhooks.describe("jobs", "hook", principal=SYSTEM)
    assert described.secrets == [0, clock.wall_ms() + 9_500]
    for _ in range(9):
        last = await rotate("jobs", "hook", principal=SYSTEM)
    assert len(last.secrets) == 5
    given = make_secret(b"z" * 32)
    again = await rotate("jobs", "hook", given, principal=SYSTEM)
    assert again.secret == ""
    twice = await rotate("jobs", "hook", given, principal=SYSTEM)
    assert len(twice.secrets) == 5
    with pytest.raises(InvalidArgument, match="keep_ms"):
        await rotate("jobs", "hook", keep_ms=-1, principal=SYSTEM)
    with pytest.raises(InvalidConfig, match="secret"):
        await rotate("jobs", "hook", "hunter2", principal=SYSTEM)


# ── a queue that changes ──────────────────────────────────────────────────────────────────────────


async def test_an_endpoint_waits_for_its_subscriber_and_goes_on_with_it(hooks: Hooks) -> None:
    async with EndpointServer() as server:
        await hooks.queue(subscribers=["hook", "other"])
        await hooks.hook(server.url)
        await hooks.until(lambda: hooks.state().state == "delivering")
        await hooks.broker.queues.configure("jobs", {"subscribers": ["other"]})
        await hooks.until(lambda: hooks.state().state == "waiting")
        await hooks.publish(b"1")
        await hooks.broker.queues.configure("jobs", {"subscribers": ["other", "hook"]})
        await server.until(1)
        assert hooks.state().state == "delivering"


async def test_a_new_policy_does_not_disturb_deliveries(hooks: Hooks) -> None:
    async with EndpointServer() as server:
        await hooks.queue()
        await hooks.publish(*(b"%d" % number for number in range(300)))
        await hooks.hook(server.url)
        await server.until(20)
        await hooks.broker.queues.configure("jobs", {"expiry_ms": 3_600_000, "lease_ms": 5000})
        await server.until(60)
        await hooks.broker.queues.configure("jobs", {"order": "key"})
        await hooks.done()
    assert sorted(server.bodies) == sorted(b"%d" % number for number in range(300))


async def test_a_name_may_be_as_long_as_that_of_a_subscriber(hooks: Hooks) -> None:
    async with EndpointServer() as server:
        await hooks.queue()
        await hooks.publish(b"job")
        await hooks.hook(server.url, "é" * 200)
        await hooks.done()
    assert server.bodies == [b"job"]


async def test_a_share_group_has_no_webhooks(hooks: Hooks) -> None:
    await hooks.broker.parts.queue_registry.share("sharers")
    with pytest.raises(InvalidArgument, match="share group"):
        await hooks.hook(URL, queue="sharers")


async def test_dead_letters_may_be_sent_to_an_endpoint_as_well(hooks: Hooks) -> None:
    async with EndpointServer() as server:
        await hooks.queue(delivery_limit=1)
        await hooks.publish(b"job")
        consumer = await hooks.broker.queues.open_consumer("jobs")
        (leased,) = await consumer.lease(1, wait_ms=1000)
        await consumer.close(release=True, counts=True)
        assert leased.records == 1
        await hooks.until(lambda: hooks.broker.parts.queue_registry.find("jobs.dead") is not None)
        await hooks.hook(server.url, queue="jobs.dead")
        (got,) = await server.until(1)
    assert got["sparrow-header-dead-letter-reason"] == "DELIVERY_LIMIT"


async def test_without_endpoints_no_http_client_is_loaded(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\n"
        "from sparrow.broker.broker import Broker\n"
        "from sparrow.frontends.webhook.frontend import WebhookFrontend\n"
        "from sparrow.frontends.webhook.settings import WebhookSettings\n"
        "async def main():\n"
        f"    async with Broker({str(tmp_path / 'data')!r}) as broker:\n"
        "        frontend = WebhookFrontend(broker, settings=WebhookSettings())\n"
        "        await frontend.start()\n"
        "        await frontend.drain(1)\n"
        "    print([name for name in ('aiohttp', 'yarl', 'email') if name in sys.modules])\n"
        "asyncio.run(main())\n"
    )
    import sys

    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert out.decode().strip() == "[]"
