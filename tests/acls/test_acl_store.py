"""Stored rules: durable when created, in force at once, changed only with the right to do so."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sparrow.base.errors import (
    DirectoryUnreadable,
    DiskFull,
    InvalidArgument,
    NewerFormat,
    NotAuthorized,
    UnknownProducer,
)
from sparrow.broker.access.access import Access
from sparrow.broker.access.acl_store import KIND, AclService, StoredAuthorizer, encode_key
from sparrow.broker.access.acls import AclBinding, AclFilter, PatternType, Permission
from sparrow.broker.access.authz import SYSTEM, Operation, Principal, ResourceType
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.reading.subscription import Selector
from sparrow.broker.topics.registry import Topic
from sparrow.meta.memory import MemoryMetaStore
from sparrow.meta.store import Put
from sparrow.model.access import CLUSTER_NAME
from tests.broker.batches import batch

ALICE, BOB, ROOT = Principal("alice"), Principal("bob"), Principal("root")
EVERYTHING = AclFilter()
STRICT = BrokerConfig(
    default_partitions=1, super_users=frozenset({"User:root"}), allow_unnamed_resources=False
)


def rule(
    operation: Operation = Operation.READ,
    name: str = "orders",
    kind: ResourceType = ResourceType.TOPIC,
    *,
    who: str = "User:alice",
    pattern: PatternType = PatternType.LITERAL,
    permission: Permission = Permission.ALLOW,
) -> AclBinding:
    return AclBinding(kind, name, pattern, who, "*", operation, permission)


async def loaded(meta: MemoryMetaStore) -> tuple[AclService, StoredAuthorizer]:
    authorizer = StoredAuthorizer()
    acls = AclService(meta, authorizer, Access(authorizer))
    await acls.load()
    return acls, authorizer


async def test_rules_are_in_force_when_made_and_after_a_restart() -> None:
    meta = MemoryMetaStore()
    acls, authorizer = await loaded(meta)
    made = [rule(), rule(Operation.WRITE, 'we"ird|näme', pattern=PatternType.PREFIXED)]
    assert await acls.create(made, principal=SYSTEM) == [None, None]
    for known in (authorizer, (await loaded(meta))[1]):
        assert set(known.rules) == set(made)
        assert not known.allows(BOB, Operation.READ, ResourceType.TOPIC, "orders")


async def test_a_rule_made_twice_exists_once() -> None:
    meta = MemoryMetaStore()
    acls, authorizer = await loaded(meta)
    assert await acls.create([rule(), rule()], principal=SYSTEM) == [None, None]
    assert await acls.create([rule()], principal=SYSTEM) == [None]
    assert list(authorizer.rules) == [rule()]
    assert len(await meta.scan(KIND)) == 1


async def test_bad_rules_of_a_request_fail_alone() -> None:
    acls, authorizer = await loaded(MemoryMetaStore())
    outcomes = await acls.create([rule(name=""), rule(), rule(name="\0" * 1500)], principal=SYSTEM)
    assert [type(outcome) for outcome in outcomes] == [InvalidArgument, type(None), InvalidArgument]
    assert list(authorizer.rules) == [rule()]


async def test_a_rule_that_could_not_be_stored_is_not_in_force() -> None:
    meta = MemoryMetaStore()
    acls, authorizer = await loaded(meta)
    meta.full = True
    with pytest.raises(DiskFull):
        await acls.create([rule()], principal=SYSTEM)
    assert authorizer.allows(BOB, Operation.READ, ResourceType.TOPIC, "orders")


async def test_deleting_says_what_each_filter_deleted() -> None:
    meta = MemoryMetaStore()
    acls, authorizer = await loaded(meta)
    read, write, other = rule(), rule(Operation.WRITE), rule(name="other", who="User:bob")
    await acls.create([read, write, other], principal=SYSTEM)
    deleted = await acls.delete(
        [
            AclFilter(name="orders"),
            AclFilter(principal="User:alice", operation=Operation.READ),
            AclFilter(name="none"),
        ],
        principal=SYSTEM,
    )
    assert deleted == [[read, write], [read], []]
    for known in (authorizer, (await loaded(meta))[1]):
        assert list(known.rules) == [other]


async def test_a_cancelled_change_leaves_memory_and_store_alike() -> None:
    meta = MemoryMetaStore()
    acls, authorizer = await loaded(meta)
    change = asyncio.create_task(acls.create([rule()], principal=SYSTEM))
    await asyncio.sleep(0)
    change.cancel()
    await asyncio.wait([change])
    await acls.settle()
    assert list(authorizer.rules) == list((await loaded(meta))[1].rules)


async def test_a_rule_that_cannot_be_read_stops_the_start() -> None:
    for key, value, error in (
        ('["Topic","a","Literal","User:a","*","Fly","Allow"]', b"1", DirectoryUnreadable),
        (encode_key(rule()), b"2", NewerFormat),
    ):
        meta = MemoryMetaStore()
        await meta.write([Put(KIND, key, value)])
        with pytest.raises(error):
            await loaded(meta)


async def test_changing_rules_needs_alter_on_the_cluster(tmp_path: Path) -> None:
    async with Broker(tmp_path / "d", config=STRICT) as broker:
        for denied in (
            broker.acls.create([rule()], principal=ALICE),
            broker.acls.delete([EVERYTHING], principal=ALICE),
        ):
            with pytest.raises(NotAuthorized, match="Alter Cluster"):
                await denied
        with pytest.raises(NotAuthorized, match="Describe Cluster"):
            broker.acls.describe(EVERYTHING, principal=ALICE)
        await broker.acls.create([rule(Operation.ALTER, CLUSTER_NAME, ResourceType.CLUSTER)], principal=ROOT)
        await broker.acls.create([rule()], principal=ALICE)
        assert len(broker.acls.describe(EVERYTHING, principal=ALICE)) == 2


async def test_rules_survive_the_broker(tmp_path: Path) -> None:
    async with Broker(tmp_path / "d", config=STRICT) as broker:
        await broker.topics.create("orders", principal=ROOT)
        await broker.acls.create([rule(Operation.WRITE)], principal=ROOT)
    async with Broker(tmp_path / "d", config=STRICT) as broker:
        await broker.records.publish("orders", 0, batch(b"a"), principal=ALICE)
        with pytest.raises(NotAuthorized, match="User:bob is not allowed to Write Topic 'orders'"):
            broker.records.publish("orders", 0, batch(b"a"), principal=BOB)


async def test_anybody_has_an_identity_and_nobody_that_of_another(tmp_path: Path) -> None:
    async with Broker(tmp_path / "d", config=STRICT) as broker:
        identity = await broker.records.open_producer(principal=ALICE)
        assert (
            broker.records.resume_producer(identity.producer_id, identity.epoch, principal=ALICE) == identity
        )
        with pytest.raises(UnknownProducer):
            broker.records.resume_producer(identity.producer_id, identity.epoch, principal=BOB)


class Heard:
    """A listener of a subscription that records its calls."""

    def __init__(self) -> None:
        self.reads: set[str] = set()
        self.error: Exception | None = None
        self.called = asyncio.Event()

    def assigned(self, epoch: int, added: list[tuple[str, int, int]]) -> None:
        self.reads |= {topic for topic, _, _ in added}
        self.called.set()

    def revoked(self, epoch: int, partitions: list[tuple[str, int]], reason: str) -> None:
        self.reads -= {topic for topic, _ in partitions}
        self.called.set()

    def ended(self, error: Exception) -> None:
        self.error = error
        self.called.set()

    async def next(self) -> None:
        async with asyncio.timeout(10):
            await self.called.wait()
        self.called.clear()


@pytest.mark.parametrize("group", ["", "billing"])
async def test_a_subscription_ends_when_reading_is_forbidden(tmp_path: Path, group: str) -> None:
    async with Broker(tmp_path / "d") as broker:
        await broker.topics.create("orders", 1)
        heard = Heard()
        subscription = await broker.records.subscribe(
            [Selector("orders")], listener=heard, group=group, principal=ALICE
        )
        await heard.next()
        assert heard.reads == {"orders"}
        await broker.acls.create([rule(permission=Permission.DENY)])
        await heard.next()
        assert isinstance(heard.error, NotAuthorized)
        assert await subscription.read(1 << 20, max_wait_ms=0) == []
        await asyncio.sleep(0)
        if group:
            assert not broker.groups.describe(group).members
        await subscription.close()


async def test_a_group_that_may_not_be_read_any_more_loses_the_subscription(tmp_path: Path) -> None:
    async with Broker(tmp_path / "d") as broker:
        await broker.topics.create("orders", 1)
        heard = Heard()
        subscription = await broker.records.subscribe(
            [Selector("orders")], listener=heard, group="g", principal=ALICE
        )
        await heard.next()
        await broker.acls.create([rule(name="g", kind=ResourceType.GROUP, permission=Permission.DENY)])
        await heard.next()
        assert isinstance(heard.error, NotAuthorized)
        assert heard.error.resource_type == "Group"
        await subscription.close()


async def test_a_member_of_a_group_gets_no_record_that_came_after_a_denial(tmp_path: Path) -> None:
    """This holds even if the member never confirms that it is done with the partition."""
    async with Broker(tmp_path / "d") as broker:
        await broker.topics.create("o.open", 1)
        await broker.topics.create("o.secret", 1)
        heard = Heard()
        subscription = await broker.records.subscribe(
            [Selector("o.*", is_pattern=True)], listener=heard, group="g", principal=ALICE
        )
        while heard.reads != {"o.open", "o.secret"}:
            await heard.next()
        await broker.acls.create([rule(name="o.secret", permission=Permission.DENY)])
        await broker.records.publish("o.secret", 0, batch(b"secret"), principal=SYSTEM)
        await broker.records.publish("o.open", 0, batch(b"open"))
        got = await subscription.read(1 << 20, max_wait_ms=10_000)
        got += await subscription.read(1 << 20, max_wait_ms=50)
        assert {delivery.topic for delivery in got} == {"o.open"}
        await subscription.close()


async def test_a_denial_that_comes_while_a_topic_is_added_counts(tmp_path: Path) -> None:
    async with Broker(tmp_path / "d") as broker:
        await broker.topics.create("orders", 1)
        subscription = await broker.records.subscribe([Selector("orders")], listener=Heard(), principal=ALICE)
        ensure = broker.parts.topic_registry.ensure

        async def slowly(name: str) -> Topic:
            await broker.acls.create([rule(name="new", permission=Permission.DENY)])
            return await ensure(name)

        broker.parts.topic_registry.ensure = slowly  # type: ignore[method-assign]
        with pytest.raises(NotAuthorized):
            await subscription.update([Selector("new")], [])
        await subscription.close()


async def test_pattern_drops_topics_that_become_unreadable_and_regains_them(
    tmp_path: Path,
) -> None:
    config = BrokerConfig(super_users=frozenset({"User:ANONYMOUS"}))
    async with Broker(tmp_path / "d", config=config) as broker:
        await broker.topics.create("o.open", 1)
        await broker.topics.create("o.secret", 1)
        heard = Heard()
        subscription = await broker.records.subscribe(
            [Selector("o.*", is_pattern=True)], listener=heard, principal=ALICE
        )
        await heard.next()
        assert heard.reads == {"o.open", "o.secret"}
        await broker.acls.create([rule(name="o.secret", permission=Permission.DENY)])
        await heard.next()
        assert heard.reads == {"o.open"}
        await broker.acls.delete([EVERYTHING])
        await heard.next()
        assert heard.reads == {"o.open", "o.secret"}
        await subscription.close()
