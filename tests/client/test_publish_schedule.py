"""The delivery options of a publisher arrive in the headers that queues read."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparrow.sync
from sparrow.base.clock import ManualClock
from sparrow.base.errors import InvalidArgument
from sparrow.broker.queues.rules.delivery_info import DeliveryInfo
from sparrow.broker.queues.scan.record_headers import hash_of, look
from sparrow.client.client import Client
from sparrow.client.options import ProducerOptions
from sparrow.client.producer import Producer
from sparrow.client.schedule import Schedule, anchored, with_schedule
from sparrow.records.builder import build_batch
from sparrow.records.wellknown import MAX_TIME_MS
from tests.client.frontends import Frontend, everything, open_session

NOW_MS = 1_777_636_800_000
NOON = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def headers_of(**schedule: Any) -> dict[str, bytes | None]:
    return dict(with_schedule((), Schedule(**schedule), NOW_MS))


# ── what the options mean ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("schedule", "headers"),
    [
        ({}, {}),
        ({"delay_ms": 5000}, {"deliver-at": b"1777636805000"}),
        ({"delay_ms": 0}, {}),
        ({"deliver_at": 5}, {"deliver-at": b"5"}),
        ({"deliver_at": NOON}, {"deliver-at": b"1777636800000"}),
        ({"deliver_at": NOON.astimezone(timezone(timedelta(hours=5)))}, {"deliver-at": b"1777636800000"}),
        ({"ttl_ms": 1}, {"expires-at": b"1777636800001"}),
        ({"expires_at": NOON}, {"expires-at": b"1777636800000"}),
        ({"priority": 0}, {"priority": b"0"}),
        ({"priority": 9}, {"priority": b"9"}),
        ({"message_id": "ü"}, {"message-id": "ü".encode()}),
        ({"parents": []}, {}),
        ({"parents": iter(["a"])}, {"parent-id": b"a"}),
        (dict.fromkeys(Schedule.__annotations__), {}),
    ],
)
def test_each_option_is_a_header(schedule: dict[str, Any], headers: dict[str, bytes]) -> None:
    assert headers_of(**schedule) == headers


def test_all_options_go_together_behind_the_headers_given() -> None:
    schedule = Schedule(delay_ms=10, ttl_ms=1000, priority=7, message_id="c", parents=["a", "b"])
    assert with_schedule((("own", b"x"),), schedule, NOW_MS) == (
        ("own", b"x"),
        ("deliver-at", b"%d" % (NOW_MS + 10)),
        ("expires-at", b"%d" % (NOW_MS + 1000)),
        ("priority", b"7"),
        ("message-id", b"c"),
        ("parent-id", b"a"),
        ("parent-id", b"b"),
    )


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        ({"delay_ms": 5, "deliver_at": NOON}, "deliver_at and delay_ms are both given"),
        ({"delay_ms": 0, "deliver_at": 5}, "both given"),
        ({"ttl_ms": 5, "expires_at": NOON}, "expires_at and ttl_ms are both given"),
        ({"delay_ms": 5000, "ttl_ms": 5000}, "would expire before it may be delivered"),
        ({"deliver_at": NOON, "expires_at": NOON - timedelta(seconds=1)}, "would expire"),
        ({"delay_ms": -1}, "delay_ms is -1; it must be milliseconds, 0 or more"),
        ({"delay_ms": 1.5}, "delay_ms is 1.5"),
        ({"delay_ms": True}, "delay_ms is True"),
        ({"delay_ms": timedelta(seconds=1)}, "delay_ms is datetime.timedelta"),
        ({"delay_ms": MAX_TIME_MS}, "delay_ms is"),
        ({"ttl_ms": 0}, "ttl_ms is 0; it must be milliseconds, 1 or more"),
        ({"deliver_at": -5}, "deliver_at is -5; it must be milliseconds since 1970"),
        ({"deliver_at": 0}, "deliver_at is 0"),
        ({"deliver_at": "noon"}, "deliver_at is 'noon'"),
        ({"deliver_at": datetime(2026, 5, 1)}, "a time without zone"),  # noqa: DTZ001 - the mistake
        ({"expires_at": datetime(2026, 5, 1)}, "expires_at is .* a time without zone"),  # noqa: DTZ001
        ({"deliver_at": datetime(1969, 1, 1, tzinfo=UTC)}, "deliver_at is -"),
        ({"priority": 10}, "priority is 10; it must be a number from 0 to 9"),
        ({"priority": -1}, "priority is -1"),
        ({"priority": "7"}, "priority is '7'"),
        ({"message_id": ""}, "message_id must be text that is not empty"),
        ({"message_id": b"a"}, "message_id must be text"),
        ({"message_id": "\ud800"}, "cannot be written as UTF-8"),
        ({"parents": [""]}, "each of the parents must be text"),
        ({"parents": ["a", None]}, "each of the parents must be text"),
        ({"parents": "abc"}, "parents is 'abc'; it must be a list of ids"),
        ({"parents": 5}, "parents is 5"),
    ],
)
def test_impossible_schedule_is_refused_with_the_reason(schedule: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        headers_of(**schedule)
    # A blocking producer fixes the times when it is called; the mistakes remain.
    with pytest.raises(InvalidArgument, match=text):
        with_schedule((), anchored(Schedule(**schedule), NOW_MS), NOW_MS)


@pytest.mark.parametrize("header", ["deliver-at", "expires-at", "priority", "message-id", "parent-id"])
def test_a_header_that_an_option_sets_too_is_refused(header: str) -> None:
    schedule = Schedule(delay_ms=1, ttl_ms=9, priority=1, message_id="a", parents=["b"])
    with pytest.raises(InvalidArgument, match=f"the header '{header}' is given, and so is the option"):
        with_schedule(((header, b"1"),), schedule, NOW_MS)


def test_an_option_that_does_not_exist_is_an_error_of_the_program() -> None:
    misspelt: Any = {"dealy_ms": 5}
    with pytest.raises(TypeError, match="unexpected keyword argument 'dealy_ms'"):
        with_schedule((), misspelt, NOW_MS)
    with pytest.raises(TypeError, match="'dealy_ms'"):
        anchored(misspelt, NOW_MS)


@settings(deadline=None)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "delay_ms": st.integers(1, 10**6),
            "ttl_ms": st.integers(10**6 + 1, 10**9),
            "priority": st.integers(0, 9),
            "message_id": st.text(st.characters(codec="utf-8"), min_size=1),
            "parents": st.lists(st.text(st.characters(codec="utf-8"), min_size=1)),
        },
    )
)
def test_queue_reads_the_options_of_the_publisher(said: dict[str, Any]) -> None:
    headers = with_schedule((), Schedule(**said), NOW_MS)
    batch = build_batch([b""], headers=[headers], timestamps=NOW_MS)
    expected = DeliveryInfo(
        0,
        NOW_MS,
        deliver_at_ms=NOW_MS + said["delay_ms"] if "delay_ms" in said else 0,
        level=said.get("priority", 4),
        expires_at_ms=NOW_MS + said["ttl_ms"] if "ttl_ms" in said else 0,
        message_id=hash_of(said["message_id"].encode()) if "message_id" in said else 0,
        parents=tuple(hash_of(parent.encode()) for parent in said.get("parents", ())),
    )
    found = [info for _, _, found in look(batch, 0, 1) for info in found or [DeliveryInfo(0, NOW_MS)]]
    assert found == [expected]


# ── publishing ────────────────────────────────────────────────────────────────────────────────────


async def test_publish_takes_the_options(client: Client) -> None:
    await client.publish(
        "t", b"x", headers={"own": None}, deliver_at=NOON, priority=3, message_id="m", parents=["p"]
    )
    (message,) = await everything(client, "t", 1)
    assert message.headers == (
        ("own", None),
        ("deliver-at", b"1777636800000"),
        ("priority", b"3"),
        ("message-id", b"m"),
        ("parent-id", b"p"),
    )


async def test_delays_of_a_producer_count_from_the_call(frontend: Frontend) -> None:
    session = await open_session(frontend.url)
    clock = ManualClock(wall_ms=NOW_MS)
    try:
        async with Producer(session, ProducerOptions(), clock=clock) as producer:
            sent = await (await producer.send("t", b"1", delay_ms=100))
            nowait = await producer.send_nowait("t", b"2", ttl_ms=100, partition=sent.partition)
    finally:
        await session.close()
    async with sparrow.connect(frontend.url) as client:
        first, second = await everything(client, "t", 2)
    assert first.headers == (("deliver-at", b"%d" % (NOW_MS + 100)),)
    assert second.headers == (("expires-at", b"%d" % (NOW_MS + 100)),)
    assert (sent.offset, nowait.offset) == (0, 1)


async def test_a_refused_message_takes_no_room(client: Client) -> None:
    async with client.producer() as producer:
        with pytest.raises(InvalidArgument, match="priority"):
            await producer.send("t", b"x", priority=10)
        with pytest.raises(InvalidArgument, match="priority"):
            producer.send_nowait("t", b"x", priority=10)
        misspelt: Any = {"dealy_ms": 5}
        with pytest.raises(TypeError):
            await producer.send("t", b"x", **misspelt)
        assert producer.pending_bytes == 0


async def test_headers_of_options_count_for_the_size(client: Client) -> None:
    async with client.producer(linger_ms=60_000, batch_bytes=4096) as producer:
        before = producer.pending_bytes
        await producer.send("t", b"", parents=["p" * 1000])
        assert producer.pending_bytes - before >= 1000


async def test_threads_may_give_the_options_too(frontend: Frontend) -> None:
    def publish() -> None:
        with sparrow.sync.connect(frontend.url) as client:
            client.publish("t", b"1", partition=0, priority=1)
            with client.producer() as producer:
                producer.send("t", b"2", partition=0, deliver_at=NOON)
                wrong = producer.send("t", b"3", partition=0, priority=10)
                with pytest.raises(InvalidArgument, match="priority is 10"):
                    wrong.result()
                misspelt: Any = {"dealy_ms": 5}
                with pytest.raises(TypeError, match="dealy_ms"):
                    producer.send("t", b"4", **misspelt)
                producer.send("t", b"5", partition=0, message_id="m").result()

    await asyncio.to_thread(publish)
    async with sparrow.connect(frontend.url) as client:
        messages = await everything(client, "t", 3)
    assert [message.headers for message in messages] == [
        (("priority", b"1"),),
        (("deliver-at", b"1777636800000"),),
        (("message-id", b"m"),),
    ]


def test_delays_of_a_blocking_producer_count_from_the_call() -> None:
    schedule = anchored(Schedule(delay_ms=100, ttl_ms=200, priority=3), NOW_MS)
    assert with_schedule((), schedule, NOW_MS + 150) == with_schedule(
        (), Schedule(deliver_at=NOW_MS + 100, expires_at=NOW_MS + 200, priority=3), 0
    )
