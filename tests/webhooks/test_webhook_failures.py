"""Endpoints that fail in every way that an endpoint can."""

from __future__ import annotations

import asyncio
import logging
import time
from email.utils import formatdate

import pytest

from sparrow.base.errors import UnknownTopic
from tests.webhooks.conftest import Hooks
from tests.webhooks.endpoints import EndpointServer, Got, http_response


async def test_at_the_delivery_limit_a_record_goes_to_the_dead_letters_with_the_endpoints_words(
    hooks: Hooks,
) -> None:
    async with EndpointServer(http_response(422, b"no such\r\ncustomer " + b"x" * 5000)) as server:
        await hooks.queue(delivery_limit=3)
        await hooks.publish(b"job")
        await hooks.hook(server.url, backoff_ms=1)
        await hooks.done()
    assert len(server.got) == 3
    (letter,) = await hooks.dead()
    assert letter["dead-letter-reason"] == b"DELIVERY_LIMIT"
    error = letter["dead-letter-error"] or b""
    assert error.startswith(b"HTTP 422: no such customer xxx")
    assert len(error) < 300


async def test_the_queues_own_backoff_holds_where_the_endpoint_has_none(hooks: Hooks) -> None:
    async with EndpointServer([http_response(500), http_response()]) as server:
        await hooks.queue(backoff_ms=60_000)
        await hooks.publish(b"job")
        await hooks.hook(server.url)
        await server.until(1)
        await hooks.until(lambda: hooks.statistics().delayed == 1)
        (peeked,) = await hooks.broker.queues.peek("jobs")
        assert (peeked.state, peeked.error) == ("delayed", "HTTP 500")


async def test_without_any_backoff_there_is_one_of_a_second(hooks: Hooks) -> None:
    async with EndpointServer(http_response(500)) as server:
        await hooks.queue()
        await hooks.publish(b"job")
        await hooks.hook(server.url)
        await server.until(1)
        await hooks.until(lambda: hooks.statistics().delayed == 1)
        await asyncio.sleep(0.1)
        assert len(server.got) == 1


@pytest.mark.slow
@pytest.mark.parametrize("status", [429, 503])
async def test_an_endpoint_that_asks_for_time_gets_it_for_all_its_records(hooks: Hooks, status: int) -> None:
    times: list[float] = []

    def busy_once(_: Got) -> bytes:
        times.append(time.monotonic())
        return http_response(status, b"busy", retry_after="1") if len(times) == 1 else http_response()

    async with EndpointServer(busy_once) as server:
        await hooks.queue()
        await hooks.publish(*(b"%d" % number for number in range(5)))
        await hooks.hook(server.url, concurrency=1)
        await server.until(1)
        await hooks.until(lambda: hooks.state().state == "held")
        assert hooks.state().until_ms > time.time() * 1000
        await hooks.done()
    assert len(times) == 6
    assert times[1] - times[0] >= 0.95
    assert hooks.state().throttled == 1
    (delivered_late,) = [got for got in server.got if got["sparrow-delivery-count"] == "2"]
    assert delivered_late.body == b"0"


async def test_a_retry_after_may_be_a_date_and_is_at_most_an_hour(hooks: Hooks) -> None:
    async with EndpointServer(
        http_response(503, b"", retry_after=formatdate(time.time() + 9e6, usegmt=True))
    ) as server:
        await hooks.queue()
        await hooks.publish(b"job")
        await hooks.hook(server.url)
        await hooks.until(lambda: hooks.state().state == "held")
        assert 3590 < hooks.state().until_ms / 1000 - time.time() < 3601
        assert len(server.got) == 1


async def test_an_endpoint_that_is_gone_is_paused_and_its_records_stay(
    hooks: Hooks, caplog: pytest.LogCaptureFixture
) -> None:
    async with EndpointServer(http_response(410, b"moved away")) as server:
        await hooks.queue()
        await hooks.publish(*(b"%d" % number for number in range(50)))
        with caplog.at_level(logging.WARNING):
            await hooks.hook(server.url, concurrency=1)
            await hooks.until(lambda: hooks.broker.webhooks.describe("jobs", "hook").is_paused)
        await hooks.until(lambda: hooks.statistics().ready == 50)
        assert len(server.got) == 1
    assert (
        hooks.broker.webhooks.describe("jobs", "hook").paused_because
        == "the endpoint is gone: HTTP 410: moved away"
    )
    assert "is gone (HTTP 410: moved away) and is paused" in caplog.text
    (peeked, *_) = await hooks.broker.queues.peek("jobs")
    assert peeked.delivery_count == 0


@pytest.mark.slow
async def test_a_failing_endpoint_is_paused_and_probed_with_one_record(
    hooks: Hooks, caplog: pytest.LogCaptureFixture
) -> None:
    is_well = False

    def sick(_: Got) -> bytes:
        return http_response() if is_well else http_response(500)

    async with EndpointServer(sick) as server:
        await hooks.queue(delivery_limit=2, backoff_ms=50)
        await hooks.publish(*(b"%d" % number for number in range(30)))
        with caplog.at_level(logging.INFO):
            await hooks.hook(server.url, concurrency=1, pause_after=3)
            await hooks.until(lambda: hooks.state().state == "failing")
            assert len(server.got) == 3
            await hooks.until(lambda: hooks.statistics().leased == 0)
            assert hooks.state().until_ms > time.time() * 1000
            await server.until(4)
            assert len(server.got) == 4
            is_well = True
            await hooks.broker.webhooks.resume("jobs", "hook")
            await hooks.done()
    assert "is failing (HTTP 500) and is paused" in caplog.text
    assert hooks.state().pauses == 1
    assert hooks.state().consecutive_failures == 0
    assert hooks.statistics().acknowledged + len(await hooks.dead()) == 30


@pytest.mark.slow
async def test_a_probe_closes_the_breaker_by_itself(hooks: Hooks, caplog: pytest.LogCaptureFixture) -> None:
    async with EndpointServer([http_response(500), http_response()]) as server:
        await hooks.queue()
        await hooks.publish(b"1", b"2", b"3")
        with caplog.at_level(logging.INFO):
            await hooks.hook(server.url, concurrency=1, pause_after=1, backoff_ms=1)
            await hooks.done()
    assert len(server.got) == 4
    assert "accepts again" in caplog.text


@pytest.mark.slow
async def test_a_host_that_is_down_costs_no_record_its_deliveries(hooks: Hooks) -> None:
    server = EndpointServer()
    await server.open()
    await server.close()
    await hooks.queue(delivery_limit=3)
    await hooks.publish(*(b"%d" % number for number in range(20)))
    await hooks.hook(server.url, pause_after=1, concurrency=1, backoff_ms=1)
    await hooks.until(lambda: hooks.state().attempts >= 2)
    assert "cannot connect" in hooks.state().last_error
    await hooks.until(lambda: hooks.statistics().ready == 20)
    peeked = await hooks.broker.queues.peek("jobs", 100)
    assert sorted(each.delivery_count for each in peeked) == [0] * 19 + [1]
    await server.open(server.port)
    await hooks.broker.webhooks.resume("jobs", "hook")
    await hooks.done()
    await server.close()
    assert len(server.got) == 20


async def test_an_endpoint_that_hangs_is_given_up_after_its_time(hooks: Hooks) -> None:
    async def never(_: Got) -> None:
        await asyncio.Event().wait()

    async with EndpointServer(never) as server:
        await hooks.queue(delivery_limit=1)
        await hooks.publish(b"job")
        await hooks.hook(server.url, timeout_ms=100)
        await hooks.done()
    (letter,) = await hooks.dead()
    assert letter["dead-letter-error"] == b"no answer within 0.1 s"


GARBAGE = [
    b"\x00\xff" * 100 + b"\r\n\r\n",
    b"HTTP/1.1 banana\r\n\r\n",
    b"HTTP/9.9 200 OK\r\n\r\n",
    b"HTTP/1.1 500 X\r\ncontent-length: -5\r\n\r\n",
    b"HTTP/1.1 500 X\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
    b"HTTP/1.1 500 X\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n",
    b"HTTP/1.1 500 X\r\n" + b"x: y\r\n" * 100_000 + b"\r\n",
    b"HTTP/1.1 500 X\r\nx: " + b"y" * 1_000_000 + b"\r\n\r\n",
    b"HTTP/1.1 500 X\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc",
    b"HTTP/1.1 307 X\r\nlocation: http://[::\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 307 X\r\ncontent-length: 0\r\n\r\n",
]


async def test_an_answer_that_is_none_is_a_failure_and_no_more(hooks: Hooks) -> None:
    await hooks.queue()
    for number, said in enumerate(GARBAGE, 1):
        async with EndpointServer([said, http_response()]) as server:
            await hooks.hook(server.url, backoff_ms=1, timeout_ms=2000)
            await hooks.publish(b"job")
            await hooks.until(lambda: hooks.state().delivered == number)  # noqa: B023 - awaited here
            assert len(server.got) == 2, said[:60]
        assert hooks.state().failed == number
    await hooks.done()


@pytest.mark.parametrize("status", [200, 500])
async def test_a_body_without_an_end_is_read_to_a_limit(hooks: Hooks, status: int) -> None:
    sent = 0

    class Endless(EndpointServer):
        async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            try:
                await reader.readuntil(b"\r\n\r\n")
                self.got.append(Got("", [], b""))
                if len(self.got) > 1:
                    writer.write(http_response())
                    await writer.drain()
                    return
                writer.write(b"HTTP/1.1 %d X\r\ntransfer-encoding: chunked\r\n\r\n" % status)
                while True:
                    writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
                    await writer.drain()
                    sent += 65536
            except ConnectionError:
                pass
            finally:
                writer.transport.abort()

    async with Endless() as server:
        await hooks.queue()
        await hooks.publish(b"job")
        await hooks.hook(server.url, backoff_ms=1)
        await hooks.done()
    assert len(server.got) == (1 if status == 200 else 2)
    assert sent < 20 << 20


async def test_an_endpoint_that_hangs_up_is_tried_again(hooks: Hooks) -> None:
    async with EndpointServer([lambda _: None, b"HTTP/1.1 200 OK\r\ncontent-le", http_response()]) as server:
        await hooks.queue()
        await hooks.publish(b"job")
        await hooks.hook(server.url, backoff_ms=1, timeout_ms=300)
        await hooks.done()
    assert len(server.got) >= 3


async def test_a_connection_that_the_endpoint_closed_meanwhile_is_no_failure(hooks: Hooks) -> None:
    async with EndpointServer(http_response(200, b"", connection="close")) as server:
        await hooks.queue()
        for number in range(5):
            await hooks.publish(b"%d" % number)
            if not number:
                await hooks.hook(server.url)
            await server.until(number + 1)
        await hooks.done()
    assert hooks.state().failed == 0
    assert server.connections == 5


async def test_a_kept_connection_that_breaks_under_a_request_is_opened_again(hooks: Hooks) -> None:
    """As when an endpoint closes an idle connection at the very moment at which the next record
    arrives.
    """
    async with EndpointServer([http_response(), lambda _: None, http_response()]) as server:
        await hooks.queue()
        await hooks.hook(server.url, concurrency=1)
        await hooks.publish(b"1")
        await hooks.until(lambda: hooks.state().delivered == 1)
        await hooks.publish(b"2")
        await hooks.done()
    assert server.bodies == [b"1", b"2", b"2"]
    assert server.connections == 2
    assert hooks.state().failed == 0


@pytest.mark.parametrize("hangs_up", [True, False])
async def test_where_the_body_breaks_off_or_has_no_end_the_status_decides(
    hooks: Hooks, hangs_up: bool
) -> None:
    cut = [b"HTTP/1.1 %d X\r\ncontent-length: 9\r\n\r\nabc" % status for status in (200, 500)]
    async with EndpointServer([*cut, http_response()], hangs_up=hangs_up) as server:
        await hooks.queue()
        await hooks.publish(b"1", b"2")
        await hooks.hook(server.url, backoff_ms=1, timeout_ms=1_000, concurrency=1)
        await hooks.done()
    assert server.bodies == [b"1", b"2", b"2"]
    assert hooks.state().last_error == "HTTP 500"


async def test_a_large_record_is_sent_in_pieces(hooks: Hooks) -> None:
    value = bytes(range(256)) * (3 << 12)
    async with EndpointServer() as server:
        await hooks.broker.topics.create("jobs", config={"max.message.bytes": str(8 << 20)})
        await hooks.queue()
        await hooks.publish(value)
        await hooks.hook(server.url)
        await hooks.done()
    assert server.bodies == [value]


async def test_records_that_are_unreadable_reach_the_limit_and_others_go_on(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparrow.base.errors import CorruptBatch
    from sparrow.frontends.leased_records import LeasedRecords, Unreadable
    from sparrow.frontends.webhook import worker

    real = worker.read_leased

    async def read(leased):  # type: ignore[no-untyped-def]
        if any(first == 0 for first, _, _ in leased.ranges):
            error = CorruptBatch("a batch becomes too large", base_offset=0, next_offset=1)
            return LeasedRecords([], [], [Unreadable(error, leased.ranges)])
        return await real(leased)

    monkeypatch.setattr(worker, "read_leased", read)
    async with EndpointServer() as server:
        await hooks.queue(delivery_limit=2)
        await hooks.publish(b"bomb")
        await hooks.hook(server.url)
        await hooks.done()
        await hooks.publish(b"job")
        await hooks.done()
    assert server.bodies == [b"job"]
    (letter,) = await hooks.dead()
    assert letter["dead-letter-error"] == b"CORRUPT_BATCH: a batch becomes too large"


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"x-%d: y\r\n" % n for n in range(500)) + b"\r\n",
        b"HTTP/1.1 200 " + b"x" * 20_000,
        b"HTTP/1.1 2OO no\r\n\r\n",
        b"HTTP/1.1 307 X\r\nlocation: http://\r\ncontent-length: 0\r\n\r\n",
    ],
)
async def test_an_error_does_not_contain_the_url_which_may_hold_a_secret(
    hooks: Hooks, garbage: bytes
) -> None:
    async with EndpointServer(garbage) as server:
        await hooks.queue(delivery_limit=1)
        await hooks.hook(f"{server.url}?token=hunter2")
        await hooks.publish(b"job")
        await hooks.done()
    (letter,) = await hooks.dead()
    assert letter["dead-letter-error"]
    assert b"hunter2" not in letter["dead-letter-error"]
    assert "hunter2" not in hooks.state().last_error


async def test_an_unreadable_record_costs_its_neighbours_nothing_and_is_not_read_without_a_pause(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparrow.base.errors import CorruptBatch
    from sparrow.frontends.leased_records import LeasedRecords, Unreadable
    from sparrow.frontends.webhook import worker

    real, reads = worker.read_leased, []

    async def read(leased):  # type: ignore[no-untyped-def]
        if any(first <= 1 <= last for first, last, _ in leased.ranges):
            reads.append(leased)
            broken = [each for each in leased.ranges if each[0] <= 1 <= each[1]]
            assert len(broken) == 1
            first, last, count = broken[0]
            others = [(first, 0, count), (2, last, count)]
            ranges = [each for each in leased.ranges if each not in broken]
            ranges = sorted(ranges + [each for each in others if each[0] <= each[1]])
            there = await real(leased._replace(ranges=ranges))
            error = CorruptBatch("a batch is broken", base_offset=1, next_offset=2)
            return LeasedRecords(there.records, there.missing, [Unreadable(error, [(1, 1, count)])])
        return await real(leased)

    monkeypatch.setattr(worker, "read_leased", read)
    async with EndpointServer() as server:
        await hooks.queue(delivery_limit=0)
        for value in (b"0", b"1", b"2", b"3"):
            await hooks.publish(value)
        await hooks.hook(server.url)
        await hooks.until(lambda: hooks.statistics().delayed == 1)
        await hooks.until(lambda: hooks.statistics().unfinished == 1)
    assert sorted(server.bodies) == [b"0", b"2", b"3"]
    assert {got["sparrow-delivery-count"] for got in server.got} == {"1"}
    assert len(reads) == 1


async def test_a_topic_that_is_deleted_ends_nothing_else(hooks: Hooks) -> None:
    async with EndpointServer() as server:
        await hooks.broker.topics.create("other")
        await hooks.broker.queues.create("jobs", ["jobs", "other"])
        await hooks.hook(server.url)
        await hooks.until(lambda: hooks.state().state == "delivering")
        await hooks.broker.topics.delete("other")
        with pytest.raises(UnknownTopic):
            hooks.broker.parts.topic_registry.get("other")
        await hooks.publish(b"job")
        await hooks.done()
    assert server.bodies == [b"job"]
