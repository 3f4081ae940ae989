"""Limits of the native frontend: the shared budget, silence, stalls, connections, memory."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from sparrow.frontends.native.work_queue import WorkQueue
from sparrow.frontends.transport.context import MAX_REFUSED
from sparrow.protocol.native import messages as m
from tests.native_frontend.raw import OpenListener, RawClient, batch_of

if TYPE_CHECKING:
    from sparrow.base.clock import ManualClock
    from sparrow.broker.broker import Broker
    from sparrow.frontends.native.connection import NativeConnection

MIB = 1 << 20


# ── the budget ────────────────────────────────────────────────────────────────────────────────────


async def test_a_big_frame_waits_for_the_budget_and_then_arrives(
    open_listener: OpenListener, broker: Broker
) -> None:
    await broker.topics.create("orders", 1)
    listener = await open_listener(broker, receive_budget_bytes=1000)
    first, second = await listener.client(), await listener.client()
    for client in (first, second):
        await client.open_producer()
        client.connection.send(m.Publish(1, "orders", 0), 1, batch_of(bytes(900)))
    frames = [b"".join(c.connection.data_to_send()) for c in (first, second)]
    first.send_raw(frames[0][:500])
    await _until(lambda: listener.frontend.receive_budget.reserved_bytes > 0)
    second.send_raw(frames[1][:500])
    await _until(lambda: listener.frontend.receive_budget.waiting == 1)
    second.send_raw(frames[1][500:])
    await asyncio.sleep(0.01)
    assert listener.frontend.receive_budget.waiting == 1
    first.send_raw(frames[0][500:])
    assert (await first.expect(m.Confirm, 1)).confirmations[0].base_offset == 0
    assert (await second.expect(m.Confirm, 1)).confirmations[0].base_offset == 1
    assert (listener.frontend.receive_budget.reserved_bytes, listener.frontend.receive_budget.waiting) == (
        0,
        0,
    )


async def test_a_lost_connection_gives_its_share_back(open_listener: OpenListener, broker: Broker) -> None:
    listener = await open_listener(broker, receive_budget_bytes=1000)
    clients = [await listener.client() for _ in range(3)]
    for client in clients:
        client.send_raw(b"\0\0\x03\0\x10")
    await _until(lambda: listener.frontend.receive_budget.waiting == 2)
    for client in clients:
        client.writer.transport.abort()
    await _until(lambda: listener.frontend.connections == 0)
    assert (listener.frontend.receive_budget.reserved_bytes, listener.frontend.receive_budget.waiting) == (
        0,
        0,
    )


async def _until(condition: object) -> None:
    for _ in range(10_000):
        if condition():  # type: ignore[operator]
            return
        await asyncio.sleep(0.0005)
    raise AssertionError("it did not come to pass")


# ── silence ───────────────────────────────────────────────────────────────────────────────────────


async def test_a_connection_without_hello_is_closed_after_its_time(
    open_listener: OpenListener, timed_broker: Broker, clock: ManualClock
) -> None:
    listener = await open_listener(timed_broker)
    stranger = await listener.silent_client()
    stranger.connection.send(m.Hello("sparrow", 1, 1))  # not written
    await _until(lambda: listener.frontend.connections == 1)
    clock.advance(9)
    listener.frontend.sweep()
    assert not stranger.reader.at_eof()
    clock.advance(2)
    listener.frontend.sweep()
    assert (await stranger.expect(m.Error)).code == "TIMED_OUT"
    assert await stranger.at_eof()


async def test_a_silent_connection_gets_a_goodbye_and_one_that_pings_stays(
    open_listener: OpenListener, timed_broker: Broker, clock: ManualClock
) -> None:
    listener = await open_listener(timed_broker)
    silent, lively = await listener.client(), await listener.client()
    for _ in range(5):
        clock.advance(20)
        assert await lively.nothing_comes()
        listener.frontend.sweep()
    assert (await silent.expect(m.Goodbye)).code == "IDLE"
    assert await silent.at_eof()
    await lively.call("broker.describe")


async def test_a_half_open_connection_is_aborted_when_it_does_not_close(
    open_listener: OpenListener, timed_broker: Broker, clock: ManualClock
) -> None:
    listener = await open_listener(timed_broker)
    dead = await listener.client()
    for _ in range(4):  # it sent something; it is idle; it is being closed; it did not close
        clock.advance(61)
        listener.frontend.sweep()
    await _until(lambda: listener.frontend.connections == 0)
    assert await dead.at_eof()


async def test_a_frame_that_does_not_go_on_is_closed(
    open_listener: OpenListener, timed_broker: Broker, clock: ManualClock
) -> None:
    listener = await open_listener(timed_broker)
    client = await listener.client()
    client.send_raw(b"\0\0\x10\0\x10")
    await _until(lambda: listener.frontend.receive_budget.reserved_bytes > 0)
    listener.frontend.sweep()
    clock.advance(31)
    listener.frontend.sweep()
    assert "no progress" in (await client.expect(m.Error)).text
    assert await client.at_eof()
    assert listener.frontend.receive_budget.reserved_bytes == 0


async def test_a_silent_member_is_out_and_one_that_pings_stays(
    open_listener: OpenListener, timed_broker: Broker, clock: ManualClock
) -> None:
    await timed_broker.topics.create("orders", 2)
    listener = await open_listener(timed_broker)
    lively, silent = await listener.client(), await listener.client()
    await silent.subscribe("orders", group="g", credit_bytes=1)
    await silent.expect(m.Assigned, 2)
    await lively.subscribe("orders", group="g", credit_bytes=1)
    revoke = await silent.expect(m.Revoke, 2)
    silent.send(m.Revoked(revoke.epoch, revoke.partitions), 2)
    assert len((await lively.expect(m.Assigned, 2)).added) == 1
    for _ in range(5):
        clock.advance(20)
        assert await lively.nothing_comes()
        listener.frontend.sweep()
    assert len((await lively.expect(m.Assigned, 2)).added) == 1
    assert [g.members for g in timed_broker.groups.listing()] == [1]


# ── how many ──────────────────────────────────────────────────────────────────────────────────────


async def test_one_connection_too_many_is_reported(open_listener: OpenListener, broker: Broker) -> None:
    listener = await open_listener(broker, max_connections=2)
    first, _ = await listener.client(), await listener.client()
    third = await listener.silent_client()
    error = await third.expect(m.Error)
    assert (error.code, error.retriable) == ("OVERLOADED", True)
    assert await third.at_eof()
    third.close()
    first.close()
    await _until(lambda: listener.frontend.connections == 1)
    await listener.client()


RESPONSE_BYTES = 20_000


def _small_send_buffer(session: NativeConnection) -> None:
    """Shrink the buffer: otherwise the kernel takes megabytes before the broker notices that the
    client does not read.
    """
    assert session.transport
    sock = session.transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)


@pytest.mark.slow
async def test_refused_connections_take_no_slot_of_others(
    open_listener: OpenListener, broker: Broker
) -> None:
    listener = await open_listener(broker, max_connections=2)
    first, _ = await listener.client(), await listener.client()
    for _ in range(3):
        assert await (await listener.silent_client()).reader.read(1)
    first.writer.transport.abort()  # type: ignore[attr-defined]
    await _until(lambda: listener.frontend.connections == 4)
    await listener.client()


async def test_many_refused_connections_are_closed_without_an_error(
    open_listener: OpenListener, broker: Broker
) -> None:
    listener = await open_listener(broker, max_connections=1)
    await listener.client()
    for _ in range(MAX_REFUSED):
        assert await (await listener.silent_client()).reader.read(1)
    assert not await (await listener.silent_client()).reader.read(1)
    assert listener.frontend.connections == 1 + MAX_REFUSED


async def test_a_connection_that_is_ended_while_it_waits_for_the_budget_is_gone_when_its_peer_closes(
    open_listener: OpenListener, timed_broker: Broker, clock: ManualClock
) -> None:
    listener = await open_listener(timed_broker, receive_budget_bytes=10)
    holder = await listener.client()
    holder.send_raw(b"\0\0\x01\0")
    await _until(lambda: listener.frontend.receive_budget.reserved_bytes)
    waiting = await listener.silent_client()
    waiting.send_raw(b"\0\0\x01\0")
    await _until(lambda: listener.frontend.receive_budget.waiting)
    clock.advance(11)
    listener.frontend.sweep()
    assert await waiting.reader.read()
    waiting.close()
    await _until(lambda: listener.frontend.connections == 1)


async def test_a_client_that_asks_without_reading_is_not_read_from(
    open_listener: OpenListener, broker: Broker
) -> None:
    listener = await open_listener(broker, write_high_water_bytes=50_000)
    for number in range(200):
        await broker.topics.create(f"topic-{number}", 1)
    client = await listener.client()
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]
    session = next(iter(listener.frontend.open_connections))
    _small_send_buffer(session)
    for ref in range(300):
        client.send(m.Request(ref, "topic.list", {}))
    await _until(lambda: not session.can_write)
    await (await listener.client()).call("broker.describe")
    assert not session.can_write
    assert session.unsent_bytes < 50_000 + 2 * RESPONSE_BYTES
    client.reader._transport.resume_reading()  # type: ignore[attr-defined]
    refs = {(await client.expect(m.Response)).ref for _ in range(300)}
    assert refs == set(range(300))


@pytest.mark.slow
async def test_an_idle_connection_costs_less_than_15_kilobytes_and_no_task(
    open_listener: OpenListener, broker: Broker
) -> None:
    import gc
    import tracemalloc

    listener = await open_listener(broker)
    count = 300
    tracemalloc.start()
    before = tracemalloc.take_snapshot()
    clients: list[RawClient] = []
    for _ in range(count):
        clients.append(await listener.client(client_name="idle"))
    gc.collect()
    ours = tracemalloc.take_snapshot().compare_to(before, "filename")
    tracemalloc.stop()
    allowed = ("/frontends/native/", "/protocol/native/")
    cost = sum(s.size_diff for s in ours if any(part in s.traceback[0].filename for part in allowed))
    # The clients' own state machines are counted, too.
    assert cost / count < 15_000
    assert len(asyncio.all_tasks()) < 20


# ── work ──────────────────────────────────────────────────────────────────────────────────────────


async def test_work_runs_in_order_one_at_a_time_and_leaves_no_task() -> None:
    done: list[int] = []
    waiting = 0

    def changed(change: int) -> None:
        nonlocal waiting
        waiting += change

    queue = WorkQueue(1, lambda: True, changed)

    def job(number: int) -> object:
        async def run() -> None:
            await asyncio.sleep(0)
            done.append(number)
            if number < 3:
                queue.add(job(number + 10))  # type: ignore[arg-type]

        return run

    for number in range(4):
        queue.add(job(number))  # type: ignore[arg-type]
    assert waiting == 4
    await _until(lambda: queue.is_idle)
    assert done == [0, 1, 2, 3, 10, 11, 12]
    assert waiting == 0
    queue.add(job(5))  # type: ignore[arg-type]
    await _until(lambda: queue.is_idle)
    assert done[-1] == 5


async def test_work_rests_while_it_may_not_run_and_goes_on() -> None:
    may_run = False
    done: list[int] = []
    queue = WorkQueue(2, lambda: may_run, lambda _: None)
    for number in range(5):

        async def run(number: int = number) -> None:
            done.append(number)

        queue.add(run)
    await asyncio.sleep(0)
    assert done == []
    may_run = True
    queue.resume()
    await _until(lambda: queue.is_idle)
    assert sorted(done) == [0, 1, 2, 3, 4]


async def test_cancelled_queue_drops_waiting_work() -> None:
    queue = WorkQueue(1, lambda: True, lambda _: None)
    started = asyncio.Event()

    async def forever() -> None:
        started.set()
        await asyncio.Event().wait()

    queue.add(forever)
    queue.add(forever)
    await started.wait()
    queue.cancel()
    await _until(lambda: queue.is_idle)
