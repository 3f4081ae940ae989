"""Draining the native frontend: say goodbye, finish, close, in bounded time."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from sparrow.frontends.transport.connection import PauseReason
from sparrow.protocol.native import messages as m
from tests.native_frontend.raw import Listener, RawClient, batch_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.broker.broker import Broker


async def test_clients_get_a_goodbye_and_the_frontend_is_closed(
    listener: Listener, client: RawClient
) -> None:
    draining = asyncio.ensure_future(listener.frontend.drain(5))
    assert (await client.expect(m.Goodbye)).code == "DRAINING"
    with pytest.raises(ConnectionError):
        await listener.silent_client()
    client.send(m.Goodbye())
    assert await client.at_eof()
    await asyncio.wait_for(draining, 1)
    assert listener.frontend.connections == 0


async def test_pending_publishes_are_confirmed(broker: Broker, listener: Listener, client: RawClient) -> None:
    await broker.topics.create("orders", 1)
    await client.open_producer()
    draining = asyncio.ensure_future(listener.frontend.drain(5))
    client.send(m.Publish(1, "orders", 0), 1, batch_of(b"crossing"))
    received = [(await client.receive()).head for _ in range(2)]
    assert sorted(type(head).__name__ for head in received) == ["Confirm", "Goodbye"]
    client.send(m.Goodbye())
    await draining


async def test_a_member_may_commit_while_the_frontend_drains(
    broker: Broker, listener: Listener, client: RawClient
) -> None:
    await broker.topics.create("orders", 1)
    await client.subscribe("orders", group="g", credit_bytes=1)
    await client.expect(m.Assigned, 2)
    draining = asyncio.ensure_future(listener.frontend.drain(5))
    await client.expect(m.Goodbye)
    client.send(m.Commit(1, [m.OffsetCommit("orders", 0, 0)]), 2)
    assert await client.expect(m.Response, 2) == m.Response(1)
    client.send(m.Goodbye())
    await draining


async def test_openings_that_cross_the_goodbye_are_refused_as_draining(
    listener: Listener, client: RawClient
) -> None:
    draining = asyncio.ensure_future(listener.frontend.drain(5))
    client.send(m.OpenProducer(), 1)
    client.send(m.Subscribe([m.Selector("orders")]), 2)
    heads = [(await client.receive()).head for _ in range(3)]
    assert [h.code for h in heads if isinstance(h, m.Error)] == ["DRAINING", "DRAINING"]
    client.send(m.Goodbye())
    await draining


async def test_clients_that_do_not_listen_are_closed_in_bounded_time(
    broker: Broker, listener: Listener, client: RawClient
) -> None:
    deaf = await listener.client()
    await listener.silent_client()
    begun = time.monotonic()
    await listener.frontend.drain(0.1)
    assert time.monotonic() - begun < 2
    assert listener.frontend.connections == 0
    assert await deaf.at_eof()
    assert await client.at_eof()


async def test_draining_twice_is_no_error(listener: Listener) -> None:
    await listener.frontend.drain(0.1)
    await listener.frontend.drain(0.1)


async def test_a_client_that_said_goodbye_before_the_drain_still_gets_its_confirmation(
    broker: Broker, listener: Listener, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.topics.create("orders", 1)
    await client.open_producer()
    log = broker.parts.topic_registry.get("orders").partition(0).log
    waiting: list[Callable[[None], None]] = []
    monkeypatch.setattr(type(log), "when_durable", lambda _, __, then: waiting.append(then))
    client.send(m.Publish(1, "orders", 0), 1, batch_of(b"a"))
    client.send(m.Goodbye())
    while not log.end_offset:
        await asyncio.sleep(0)
    draining = asyncio.ensure_future(listener.frontend.drain(5))
    await asyncio.sleep(0.01)
    (confirm,) = waiting
    confirm(None)
    assert (await client.expect(m.Confirm, 1)).confirmations == [m.Confirmation(1, 0)]
    await client.expect(m.Goodbye)
    await draining


async def test_work_that_ends_during_a_drain_does_not_begin_reading_again(
    listener: Listener, client: RawClient
) -> None:
    (session,) = listener.frontend.open_connections
    session.pause_reading(PauseReason.DRAIN)
    session.work_changed(1)
    session.work_changed(-1)
    client.send(m.Ping(1))
    for _ in range(20):
        await asyncio.sleep(0)
    assert session.is_paused_by_us
    session.abort()
