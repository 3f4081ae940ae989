"""Streams over a kill -9: a client that continues at its last position misses nothing that was
acknowledged, and gets nothing twice.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator

import pytest

from sparrow.testing import broker as running_broker
from sparrow.testing.running_broker import RunningBroker
from tests.http_frontend.raw import ask
from tests.http_streams.conftest import Events, Socket, event_stream, socket_to

RECORDS = 300
KILLED_AFTER = 100


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with running_broker(process=True, default_partitions=2) as running:
        yield running


def port_of(broker: RunningBroker) -> int:
    return int(broker.http.rpartition(":")[2])


@pytest.mark.slow
async def test_an_event_stream_goes_on_over_a_crash_with_each_record_once(broker: RunningBroker) -> None:
    port = port_of(broker)
    published: list[tuple[int, int]] = []
    got: list[tuple[int, int]] = []
    last_id = ""
    for round_number in range(3):
        values = [{"value": f"{round_number}/{number}"} for number in range(RECORDS)]
        for start in range(0, RECORDS, 50):
            body = json.dumps({"messages": values[start : start + 50]}).encode()
            response = await ask(
                port, "POST", "/v1/topics/t/messages", body, {"Content-Type": "application/json"}
            )
            published += [(each["partition"], each["offset"]) for each in response.json["messages"]]
        query = "?from=beginning" if not last_id else ""
        headers = {"last_event_id": last_id} if last_id else {}
        async with event_stream(port, f"/v1/topics/t/stream{query}", **headers) as events:
            wanted = len(published) - len(got) - (KILLED_AFTER if round_number < 2 else 0)
            got += [await place(events) for _ in range(wanted)]
            last_id = events.last_id
            if round_number < 2:
                await restart(broker)
    assert len(got) == len(set(got))
    assert sorted(got) == sorted(published)


async def place(events: Events) -> tuple[int, int]:
    record = (await events.next()).json
    return record["partition"], record["offset"]


async def restart(broker: RunningBroker) -> None:
    """kill -9 and restart in a thread, so that the loop of the clients runs."""
    done = threading.Event()

    def work() -> None:
        broker.kill()
        broker.restart()
        done.set()

    await asyncio.to_thread(work)
    assert done.is_set()


@pytest.mark.slow
async def test_leases_of_a_socket_survive_a_crash_and_are_settled_after_reconnecting(
    broker: RunningBroker,
) -> None:
    port = port_of(broker)
    async with socket_to(port) as socket:
        messages = [{"value": str(number)} for number in range(10)]
        await socket.ask("publish", "published", topic="work", messages=messages)
        held = await take(socket)
        await socket.ask("ack", "acked", subscription="q", leases=held[:4])
        await restart(broker)
    async with socket_to(port) as socket:
        await socket.ask("subscribe", "subscribed", subscription="q", queue="work", consumer="worker-1")
        response = await socket.ask("ack", "acked", subscription="q", leases=held[4:])
        assert "failed" not in response
        again = await socket.ask("ack", "acked", subscription="q", leases=held[:4])
        assert {each["error"]["code"] for each in again["failed"]} == {"NOT_LEASED"}


async def take(socket: Socket) -> list[str]:
    await socket.ask(
        "subscribe", "subscribed", subscription="q", queue="work", create=True, consumer="worker-1", credit=10
    )
    return [record["lease"] for record in await socket.records(10)]


@pytest.mark.slow
async def test_the_first_client_of_a_broker_is_heard_although_libraries_are_loaded_first(
    broker: RunningBroker,
) -> None:
    async with socket_to(port_of(broker)) as socket:
        await socket.ask("ping", "pong")
