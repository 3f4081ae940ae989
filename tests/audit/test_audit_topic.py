"""The audit topic: only the broker writes it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparrow.base.errors import (
    DiskFull,
    InvalidConfig,
    NotAuthorized,
)
from sparrow.broker.access.acls import AclBinding, PatternType, Permission
from sparrow.broker.access.authz import SYSTEM, AllowAll, Operation, Principal, ResourceType
from sparrow.broker.audit import topic as audit_topic
from sparrow.broker.broker import Broker
from sparrow.broker.config import BrokerConfig
from sparrow.broker.reading.fetch import FetchRequest
from sparrow.records.batch import split
from sparrow.records.record import decode
from sparrow.server.config import ServerConfig, load
from tests.broker.batches import batch
from tests.http_admin.calls import call
from tests.http_frontend.conftest import MakeHttp

AUDIT = "__audit"
ROOT = Principal("root")
CONFIG = BrokerConfig(
    default_partitions=1,
    super_users=frozenset({"User:root"}),
    allow_unnamed_resources=True,
    audit_topic=AUDIT,
)


async def events(broker: Broker, count: int) -> list[dict[str, Any]]:
    """Wait for this many events of the topic, and return them."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        (fetched,) = await broker.records.fetch(
            [FetchRequest(AUDIT, 0, len(found))], max_wait_ms=10_000, principal=ROOT
        )
        if fetched.chunk is not None:
            records = [each for _, view in split(fetched.chunk.data) for each in decode(view)]
            found += [msgspec.json.decode(each.value or b"") for each in records if each.offset >= len(found)]
    return found


async def test_acts_and_refusals_are_records_of_the_topic(tmp_path: Path) -> None:
    async with Broker(tmp_path / "data", config=CONFIG) as broker:
        await broker.topics.create("orders", principal=ROOT)
        with pytest.raises(NotAuthorized):
            broker.statistics(principal=Principal("alice", host="10.0.0.7", listener="native"))
        broker.audit.flush()

        created, refused = (await events(broker, 2))[-2:]

        assert created["time_ms"] > 0
        del created["time_ms"], refused["time_ms"]
        assert created == {
            "action": "topic.create",
            "outcome": "done",
            "principal": "User:root",
            "resource_type": "Topic",
            "resource": "orders",
        }
        assert refused == {
            "action": "access",
            "outcome": "refused",
            "principal": "User:alice",
            "address": "10.0.0.7",
            "listener": "native",
            "resource_type": "Cluster",
            "resource": "kafka-cluster",
            "error": "NOT_AUTHORIZED",
            "needs": "Describe Cluster",
        }


async def test_events_survive_a_stop(tmp_path: Path) -> None:
    async with Broker(tmp_path / "data", config=CONFIG) as broker:
        for index in range(20):
            await broker.topics.create(f"topic-{index}", principal=ROOT)
    async with Broker(tmp_path / "data", config=CONFIG) as broker:
        found = await events(broker, 20)
        assert [each["resource"] for each in found] == [f"topic-{index}" for index in range(20)]


@pytest.mark.parametrize("principal", [ROOT, SYSTEM, Principal("alice")], ids=str)
@pytest.mark.parametrize("authorizer", [None, AllowAll()], ids=["rules", "other"])
async def test_nobody_publishes_to_the_topic(
    tmp_path: Path, principal: Principal, authorizer: AllowAll | None
) -> None:
    async with Broker(tmp_path / "data", config=CONFIG, authorizer=authorizer) as broker:
        end = broker.parts.topic_registry.get(AUDIT).partition(0).visible_end
        with pytest.raises(NotAuthorized):
            broker.records.publish(AUDIT, 0, batch(b"forged"), principal=principal)
        with pytest.raises(NotAuthorized):
            broker.records.publish(AUDIT, 0, batch(b"forged"), principal=principal, is_built_here=True)
        assert broker.parts.topic_registry.get(AUDIT).partition(0).visible_end == end


async def test_super_users_neither_delete_the_topic_nor_its_records(tmp_path: Path) -> None:
    async with Broker(tmp_path / "data", config=CONFIG) as broker:
        for act in (
            lambda: broker.topics.delete(AUDIT, principal=ROOT),
            lambda: broker.topics.delete_records(AUDIT, {0: -1}, principal=ROOT),
            lambda: broker.topics.skip_batch(AUDIT, 0, 0, force=True, principal=ROOT),
        ):
            with pytest.raises(NotAuthorized):
                await act()
        refused = [each for each in await events(broker, 3) if each["outcome"] == "refused"]
        assert [each["action"] for each in refused] == [
            "topic.delete",
            "topic.delete_records",
            "topic.skip_batch",
        ]


async def test_no_queue_has_the_topic_for_its_dead_letters(tmp_path: Path) -> None:
    async with Broker(tmp_path / "data", config=CONFIG) as broker:
        with pytest.raises(NotAuthorized):
            await broker.queues.create("jobs", policy={"dead_letter_topic": AUDIT}, principal=ROOT)


async def test_http_writes_nothing_to_the_topic(tmp_path: Path, make_http: MakeHttp) -> None:
    async with Broker(tmp_path / "data", config=CONFIG) as broker:
        http = await make_http(broker=broker, tokens={"root": "r-token"})
        body = {"messages": [{"value": "forged"}]}
        response = await call(http, "POST", f"/v1/topics/{AUDIT}/messages", body, "r-token")
        assert (response.status, response.code) == (403, "NOT_AUTHORIZED")
        await http.frontend.drain(1)


async def test_the_topic_is_internal_and_read_by_right(tmp_path: Path) -> None:
    async with Broker(tmp_path / "data", config=CONFIG) as broker:
        assert AUDIT not in [each.name for each in broker.topics.listing(principal=ROOT)]
        assert AUDIT in [each.name for each in broker.topics.listing(internal=True, principal=ROOT)]
        assert broker.topics.is_internal(AUDIT)
        rule = AclBinding(
            ResourceType.TOPIC,
            AUDIT,
            PatternType.LITERAL,
            "User:auditor",
            "*",
            Operation.READ,
            Permission.ALLOW,
        )
        await broker.acls.create([rule], principal=ROOT)
        request = [FetchRequest(AUDIT, 0, 0)]
        with pytest.raises(NotAuthorized):
            await broker.records.fetch(request, principal=Principal("alice"))
        await broker.records.fetch(request, principal=Principal("auditor"))


async def test_without_the_option_the_topic_can_be_deleted(tmp_path: Path) -> None:
    async with Broker(tmp_path / "data", config=CONFIG):
        pass
    async with Broker(tmp_path / "data") as broker:
        await broker.topics.delete(AUDIT)


async def test_unwritable_events_are_counted_without_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Broker(tmp_path / "data", config=CONFIG) as broker:
        writer = broker._audit_topic
        assert writer is not None
        is_full = True
        write = audit_topic.AuditPartition.write

        async def full(partition: audit_topic.AuditPartition, data: bytes) -> None:
            if is_full:
                raise DiskFull("the disk is full")
            await write(partition, data)

        monkeypatch.setattr(audit_topic.AuditPartition, "write", full)
        monkeypatch.setattr(audit_topic, "RETRY_S", 0.01)
        monkeypatch.setattr(audit_topic, "MAX_WAITING", 5)
        for index in range(8):
            await broker.topics.create(f"topic-{index}", principal=ROOT)
        assert broker.measures.lost_audit_events["queue_full"] >= 3
        kept = [msgspec.json.decode(record) for _, record in writer._waiting]
        is_full = False
        assert (await events(broker, len(kept)))[-len(kept) :] == kept


async def test_a_full_disk_at_the_stop_ends_it_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(_partition: audit_topic.AuditPartition, _data: bytes) -> None:
        raise DiskFull("the disk is full")

    broker = Broker(tmp_path / "data", config=CONFIG)
    async with broker:
        monkeypatch.setattr(audit_topic.AuditPartition, "write", full)
        monkeypatch.setattr(audit_topic, "CLOSE_S", 0.05)
        await broker.topics.create("orders", principal=ROOT)
        await asyncio.sleep(0)
    assert broker.measures.lost_audit_events["write_failed"] >= 1


@pytest.mark.parametrize("name", ["__consumer_offsets", "a/b", ".."])
def test_a_name_that_cannot_be_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"audit\.topic"):
        load({"audit_topic": name, "data_dir": str(tmp_path)}, {})
    assert ServerConfig().broker.audit_topic == ""
