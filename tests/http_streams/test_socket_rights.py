"""Rights that are revoked while a socket is open: everything that needs them ends."""

from __future__ import annotations

import pytest

from sparrow.broker.access.acls import AclBinding, AclFilter, PatternType, Permission
from sparrow.broker.access.authz import SYSTEM, Operation, ResourceType
from sparrow.broker.config import BrokerConfig
from sparrow.records.builder import build_batch
from tests.http_frontend.conftest import Http, MakeHttp
from tests.http_streams.conftest import socket_to

RULES = BrokerConfig(super_users=frozenset({"User:root"}), allow_unnamed_resources=False)


async def guarded(make_http: MakeHttp) -> Http:
    http = await make_http(config=RULES, tokens={"alice": "secret"})
    await http.broker.topics.create("t", 1, principal=SYSTEM)
    await http.broker.queues.create("t", principal=SYSTEM)
    may = [
        AclBinding(kind, "t", PatternType.LITERAL, "User:alice", "*", operation, Permission.ALLOW)
        for kind, operation in (
            (ResourceType.TOPIC, Operation.READ),
            (ResourceType.TOPIC, Operation.WRITE),
            (ResourceType.GROUP, Operation.READ),
        )
    ]
    await http.broker.acls.create(may, principal=SYSTEM)
    return http


@pytest.mark.parametrize("lost", [ResourceType.TOPIC, ResourceType.GROUP])
async def test_a_queue_is_not_taken_from_any_more(make_http: MakeHttp, lost: ResourceType) -> None:
    http = await guarded(make_http)
    async with socket_to(http.port, authorization="Bearer secret") as socket:
        await socket.ask("subscribe", "subscribed", subscription="s", queue="t", credit=100)
        await http.broker.records.publish("t", 0, build_batch([b"a"]), principal=SYSTEM)
        [record] = await socket.records(1)
        await http.broker.acls.delete([AclFilter(resource_type=lost)], principal=SYSTEM)
        await http.broker.records.publish("t", 0, build_batch([b"b"]), principal=SYSTEM)
        ended = await socket.expect("ended")
        assert (ended["subscription"], ended["error"]["code"]) == ("s", "NOT_AUTHORIZED")
        assert await socket.refused("ack", subscription="s", leases=[record["lease"]]) == "INVALID_ARGUMENT"
    assert http.broker.queues.describe("t", principal=SYSTEM).statistics.acknowledged == 0


@pytest.mark.parametrize("lost", [ResourceType.TOPIC, ResourceType.GROUP])
async def test_a_group_is_left(make_http: MakeHttp, lost: ResourceType) -> None:
    http = await guarded(make_http)
    async with socket_to(http.port, authorization="Bearer secret") as socket:
        await socket.ask("subscribe", "subscribed", subscription="s", topic="t", group="t", credit=100)
        await socket.expect("assigned")
        await http.broker.acls.delete([AclFilter(resource_type=lost)], principal=SYSTEM)
        await http.broker.records.publish("t", 0, build_batch([b"b"]), principal=SYSTEM)
        frame = await socket.next()
        while frame["type"] == "revoked":
            frame = await socket.next()
        assert (frame["type"], frame["error"]["code"]) == ("ended", "NOT_AUTHORIZED")


async def test_nothing_is_published_any_more(make_http: MakeHttp) -> None:
    http = await guarded(make_http)
    async with socket_to(http.port, authorization="Bearer secret") as socket:
        await socket.ask("publish", "published", topic="t", message={"value": "a"})
        await http.broker.acls.delete([AclFilter()], principal=SYSTEM)
        for message in ({"value": "b"}, {"value": "b" * 100_000}):
            assert await socket.refused("publish", topic="t", message=message) == "NOT_AUTHORIZED"
    assert http.broker.parts.topic_registry.get("t").partition(0).visible_end == 1
