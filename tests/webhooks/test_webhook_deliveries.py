"""Records of a queue are POSTed to its endpoints."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from standardwebhooks import Webhook

from sparrow.base.errors import SparrowError
from sparrow.frontends.publisher import Message
from tests.webhooks.conftest import LOCAL, Hooks
from tests.webhooks.endpoints import EndpointServer, Got, http_response


async def test_a_record_is_posted_and_acknowledged(hooks: Hooks) -> None:
    async with EndpointServer() as server:
        await hooks.queue()
        await hooks.publish(Message(b"hello", b"k", [("content-type", b"text/plain"), ("colour", b"red")]))
        await hooks.hook(server.url, headers={"Authorization": "Bearer abc"})
        (got,) = await server.until(1)
        await hooks.done()
    assert got.path == "/hook"
    assert got.body == b"hello"
    assert got["content-type"] == "text/plain"
    assert got["sparrow-queue"] == got["sparrow-topic"] == "jobs"
    assert got["sparrow-offset"] == got["sparrow-partition"] == "0"
    assert got["sparrow-delivery-count"] == "1"
    assert got["sparrow-key"] == "k"
    assert got["sparrow-header-colour"] == "red"
    assert got["authorization"] == "Bearer abc"
    assert got["user-agent"].startswith("Sparrow/")
    assert hooks.statistics().acknowledged == 1
    assert hooks.state().delivered == 1


async def test_later_messages_are_delivered_too(hooks: Hooks) -> None:
    async with EndpointServer() as server:
        await hooks.queue()
        await hooks.hook(server.url)
        await hooks.until(lambda: hooks.state().state == "delivering")
        for number in range(3):
            await hooks.publish(b"%d" % number)
            await server.until(number + 1)
        await hooks.done()
    assert server.bodies == [b"0", b"1", b"2"]
    assert server.connections == 1


async def test_each_of_many_records_comes_once_over_few_connections(hooks: Hooks) -> None:
    async with EndpointServer() as server:
        await hooks.queue()
        for first in range(0, 300, 100):
            await hooks.publish(*(b"%d" % number for number in range(first, first + 100)))
        await hooks.hook(server.url, concurrency=5)
        await hooks.done()
    assert Counter(server.bodies) == Counter(b"%d" % number for number in range(300))
    assert server.connections <= 5
    assert hooks.state().delivered == hooks.state().attempts == 300


async def test_no_more_are_under_way_than_the_endpoint_takes(hooks: Hooks) -> None:
    go = asyncio.Event()

    async def wait(_: Got) -> bytes:
        await go.wait()
        return http_response()

    async with EndpointServer(wait) as server:
        await hooks.queue()
        await hooks.publish(*(b"x" for _ in range(20)))
        await hooks.hook(server.url, concurrency=3)
        await server.until(3)
        assert hooks.state().in_flight == 3
        go.set()
        await hooks.done()
        assert server.most_at_a_time == 3


async def test_deliveries_are_signed_and_secrets_rotate(hooks: Hooks) -> None:
    async with EndpointServer() as server:
        await hooks.queue()
        made = await hooks.hook(server.url)
        assert made.secret.startswith("whsec_")
        await hooks.publish(Message(b'{"a": 1}', None, [("message-id", b"msg-1")]))
        (first,) = await server.until(1)
        assert first["webhook-id"] == "msg-1"
        assert Webhook(made.secret).verify(first.body, dict(first.headers)) == {"a": 1}

        rotated = await hooks.broker.webhooks.rotate_secret("jobs", "hook")
        assert rotated.secret != made.secret
        assert len(rotated.secrets) == 2
        await hooks.until(lambda: hooks.state().state == "delivering")
        await hooks.publish(b"{}")
        second = (await server.until(2))[1]
        for secret in (made.secret, rotated.secret):
            assert Webhook(secret).verify(second.body, dict(second.headers)) == {}

        last = await hooks.broker.webhooks.rotate_secret("jobs", "hook", keep_ms=0)
        assert last.secrets == [0]
        await hooks.publish(b"{}")
        third = (await server.until(3))[2]
        Webhook(last.secret).verify(third.body, dict(third.headers))
        assert third["webhook-signature"].count("v1,") == 1
    described = hooks.broker.webhooks.describe("jobs", "hook")
    assert described.secret == ""
    assert "whsec" not in repr(described)


async def test_every_subscriber_gets_every_record_and_a_failing_one_delays_no_other(hooks: Hooks) -> None:
    async with (
        EndpointServer() as billing,
        EndpointServer() as shipping,
        EndpointServer(http_response(500)) as broken,
    ):
        await hooks.queue(delivery_limit=2)
        for name, server in (("billing", billing), ("shipping", shipping), ("broken", broken)):
            await hooks.broker.webhooks.put(
                "jobs", name, {"url": server.url, "backoff_ms": 0, "pause_after": 1000}, add_subscriber=True
            )
        await hooks.publish(*(b"%d" % number for number in range(10)))
        await hooks.done()
    expected = Counter(b"%d" % number for number in range(10))
    assert Counter(billing.bodies) == Counter(shipping.bodies) == expected
    assert Counter(broken.bodies) == Counter(dict.fromkeys(expected, 2))
    assert {got["sparrow-subscriber"] for got in shipping.got} == {"shipping"}
    letters = await hooks.dead()
    assert len(letters) == 10
    assert {(each["dead-letter-subscriber"], each["dead-letter-error"]) for each in letters} == {
        (b"broken", b"HTTP 500")
    }


async def test_first_subscriber_gets_waiting_messages_and_a_later_one_unfinished_ones(
    hooks: Hooks,
) -> None:
    go = asyncio.Event()

    async def wait_for_second(got: Got) -> bytes:
        if got.body == b"second":
            await go.wait()
        return http_response()

    async with EndpointServer(wait_for_second) as early, EndpointServer() as late:
        await hooks.queue()
        await hooks.publish(b"first", b"second")
        await hooks.broker.webhooks.put("jobs", "early", {"url": early.url}, add_subscriber=True)
        await early.until(2)
        await hooks.until(lambda: hooks.statistics().acknowledged == 1)
        await hooks.broker.webhooks.put("jobs", "late", {"url": late.url}, add_subscriber=True)
        await late.until(1)
        go.set()
        await hooks.done()
        await hooks.publish(b"third")
        await hooks.done()
    assert late.bodies == [b"second", b"third"]
    assert early.bodies == [b"first", b"second", b"third"]


async def test_when_the_last_subscriber_goes_records_wait_for_the_next(hooks: Hooks) -> None:
    async with EndpointServer() as server:
        await hooks.queue()
        await hooks.broker.webhooks.put("jobs", "one", {"url": server.url}, add_subscriber=True)
        await hooks.broker.webhooks.delete("jobs", "one", remove_subscriber=True)
        assert hooks.broker.queues.describe("jobs").policy["subscribers"] == []
        await hooks.publish(b"waits")
        await hooks.broker.webhooks.put("jobs", "two", {"url": server.url}, add_subscriber=True)
        await hooks.done()
    assert server.bodies == [b"waits"]


async def test_endpoints_of_a_plain_queue_share_its_records(hooks: Hooks) -> None:
    async def slowly(_: Got) -> bytes:
        await asyncio.sleep(0.002)
        return http_response()

    async with EndpointServer(slowly) as one, EndpointServer(slowly) as two:
        await hooks.queue()
        await hooks.hook(one.url, "one", concurrency=2)
        await hooks.hook(two.url, "two", concurrency=2)
        await hooks.publish(*(b"%d" % number for number in range(100)))
        await hooks.done()
    assert Counter(one.bodies + two.bodies) == Counter(b"%d" % number for number in range(100))
    assert one.bodies
    assert two.bodies


async def test_a_child_comes_after_every_endpoint_accepted_its_parent(hooks: Hooks) -> None:
    order: list[tuple[str, bytes]] = []

    def noting(name: str, refusals: int) -> EndpointServer:
        def note(got: Got) -> bytes:
            nonlocal refusals
            refusals -= 1
            if refusals >= 0:
                return http_response(503)
            order.append((name, got.body))
            return http_response()

        return EndpointServer(note)

    async with noting("a", 0) as a, noting("b", 2) as b:
        await hooks.queue(order="parented")
        for name, server in (("a", a), ("b", b)):
            settings = {"url": server.url, "backoff_ms": 1}
            await hooks.broker.webhooks.put("jobs", name, settings, add_subscriber=True)
        await hooks.publish(
            Message(b"grandchild", None, [("message-id", b"3"), ("parent-id", b"2")]),
            Message(b"child", None, [("message-id", b"2"), ("parent-id", b"1")]),
            Message(b"parent", None, [("message-id", b"1")]),
        )
        await hooks.done()
    assert {body for _, body in order[:2]} == {b"parent"}
    assert {body for _, body in order[2:4]} == {b"child"}
    assert {body for _, body in order[4:]} == {b"grandchild"}


@pytest.mark.slow
async def test_a_rate_is_kept(hooks: Hooks) -> None:
    async with EndpointServer() as server:
        await hooks.queue()
        await hooks.publish(*(b"x" for _ in range(40)))
        began = asyncio.get_running_loop().time()
        await hooks.hook(server.url, rate=40)
        await server.until(40)
        elapsed = asyncio.get_running_loop().time() - began
        await hooks.done()
    assert elapsed > 0.8
    assert hooks.state().returned == 0


async def test_syncbrok_accepts_with_true_alone(hooks: Hooks) -> None:
    async with EndpointServer([http_response(200, b"false"), http_response(200, b"true")]) as server:
        await hooks.queue()
        await hooks.publish(
            Message(b"hello", None, [("message-id", b"5c07b939-6ed0-4b10-9613-4c8aab7f9cb5")])
        )
        made = await hooks.hook(server.url, format="syncbrok", backoff_ms=1)
        await hooks.done()
    assert made.secret == ""
    assert [got.json for got in server.got] == [
        {"id": "5c07b939-6ed0-4b10-9613-4c8aab7f9cb5", "content": "aGVsbG8="}
    ] * 2
    assert hooks.state().last_error == "the endpoint did not answer `true` but false"


async def test_an_endpoint_is_changed_in_the_midst_of_its_deliveries(hooks: Hooks) -> None:
    async with EndpointServer() as old, EndpointServer() as new:
        await hooks.queue()
        await hooks.publish(*(b"%d" % number for number in range(400)))
        await hooks.hook(old.url)
        await old.until(20)
        await hooks.hook(new.url)
        await hooks.done()
        assert Counter(old.bodies + new.bodies) == Counter(b"%d" % number for number in range(400))
        assert new.bodies


async def test_a_paused_endpoint_gets_nothing_over_a_restart_until_it_is_resumed(hooks: Hooks) -> None:
    async with EndpointServer() as server:
        await hooks.queue()
        await hooks.hook(server.url)
        paused = await hooks.broker.webhooks.pause("jobs", "hook")
        assert paused.is_paused
        assert paused.statistics.state == "paused"
        await hooks.publish(b"job")
        await hooks.stop()
        await hooks.start()
        await hooks.until(lambda: hooks.state().state == "paused")
        assert hooks.statistics().ready == 1
        await hooks.broker.webhooks.resume("jobs", "hook")
        await hooks.done()
    assert server.bodies == [b"job"]


async def test_running_deliveries_are_finished_at_a_drain(hooks: Hooks) -> None:
    go = asyncio.Event()

    async def wait(_: Got) -> bytes:
        await go.wait()
        return http_response()

    async with EndpointServer(wait) as server:
        await hooks.queue()
        await hooks.publish(*(b"%d" % number for number in range(10)))
        await hooks.hook(server.url, concurrency=2)
        await server.until(2)
        draining = asyncio.create_task(hooks.frontend.drain(5))
        await hooks.until(lambda: hooks.statistics().leased == 2)
        go.set()
        await draining
        assert hooks.statistics().acknowledged == 2
        assert hooks.statistics().ready == 8
        assert len(server.got) == 2


async def test_deliveries_that_do_not_end_in_time_are_released_uncounted(hooks: Hooks) -> None:
    async def never(_: Got) -> None:
        await asyncio.Event().wait()

    async with EndpointServer(never) as server:
        await hooks.queue()
        await hooks.publish(b"job")
        await hooks.hook(server.url)
        await server.until(1)
        await hooks.frontend.drain(0.05)
        (peeked,) = await hooks.broker.queues.peek("jobs")
        assert (peeked.state, peeked.delivery_count) == ("ready", 0)


@pytest.mark.slow
async def test_an_answer_that_takes_longer_than_the_lease_extends_it(hooks: Hooks) -> None:
    async def slowly(_: Got) -> bytes:
        await asyncio.sleep(1.3)
        return http_response()

    async with EndpointServer(slowly) as server:
        await hooks.queue(lease_ms=600)
        await hooks.publish(b"job")
        await hooks.hook(server.url)
        await hooks.done()
    assert len(server.got) == 1
    assert hooks.statistics().delivered == 1


async def test_a_deleted_queue_takes_its_endpoints_along(hooks: Hooks) -> None:
    async with EndpointServer() as server:
        await hooks.queue()
        await hooks.hook(server.url)
        await hooks.until(lambda: hooks.state().state == "delivering")
        await hooks.broker.queues.delete("jobs")
        await hooks.queue()
        assert hooks.broker.webhooks.listing() == []
        await hooks.publish(b"job")
        await hooks.stop()
        await hooks.start(LOCAL)
        with pytest.raises(SparrowError, match="no webhook"):
            hooks.state()
        assert server.got == []
