from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.clock import ManualClock
from sparrow.base.errors import InvalidArgument
from sparrow.broker.access.authz import ANONYMOUS, Principal
from sparrow.broker.quotas.rules import QuotaChange
from sparrow.frontends.http.leased_messages import unpack
from sparrow.frontends.http.leases import (
    Consumers,
    LeaseRequest,
    LeaseToken,
    parse_token,
    shared_id,
    token_text,
)
from sparrow.frontends.http.routes import leases as routes
from sparrow.records.compression import Compression
from tests.broker.batches import batch
from tests.http_admin.calls import call, done
from tests.http_frontend.conftest import Http, MakeHttp
from tests.http_frontend.raw import Raw, request
from tests.http_queues.lease_calls import (
    QUEUE,
    leased,
    made,
    settle,
    statistics,
    until_scanned,
    until_waiting,
    values,
)
from tests.native_frontend.raw import batch_of

# ── tokens ────────────────────────────────────────────────────────────────────────────────────────


@given(
    st.builds(
        LeaseToken,
        st.integers(0, 2**32 - 1),
        st.text(max_size=200),
        st.text(max_size=50),
        st.text(max_size=249),
        st.integers(0, 2**31 - 1),
        st.integers(0, 2**62 - 1),
        st.integers(1, 255),
    )
)
def test_a_token_is_read_back_and_needs_no_quoting(token: LeaseToken) -> None:
    text = token_text(token)

    assert parse_token(text) == token
    assert text.replace("-", "").replace("_", "").isalnum()
    assert text.isascii()


@given(st.text(max_size=300) | st.binary(max_size=200).map(lambda raw: raw.hex()))
def test_text_that_is_not_a_token_is_refused_with_a_sentence(text: str) -> None:
    try:
        parse_token(text)
    except InvalidArgument as error:
        assert "not a lease" in error.text  # noqa: PT017 - whatever is made up may be a token


@given(st.text(max_size=1500), st.text(max_size=200))
def test_the_shared_consumer_has_a_valid_name_for_any_user(name: str, subscriber: str) -> None:
    shared = shared_id(subscriber, Principal(name))

    assert 0 < len(shared) <= 200
    assert shared.isprintable()
    assert shared == shared_id(subscriber, Principal(name, host="10.1.2.3"))


# ── leasing and settling ──────────────────────────────────────────────────────────────────────────


async def test_a_message_is_published_leased_and_acknowledged(http: Http) -> None:
    await made(http.broker)
    response = await http.post(
        f"{QUEUE}/messages", b"hello", content_type="text/plain", sparrow_key="k1", sparrow_priority="7"
    )
    assert response.status == 200, response

    found = await done(http, "POST", f"{QUEUE}/lease?max=10")

    (message,) = found["messages"]
    assert (found["consumer"], found["lease_ms"]) == ("http:ANONYMOUS", 30_000)
    assert (message["topic"], message["partition"], message["offset"]) == ("emails", 0, 0)
    assert (message["key"], message["value"], message["priority"]) == ("k1", "hello", 7)
    assert message["delivery_count"] == 1
    assert message["leased_until_ms"] > message["timestamp_ms"]
    assert await leased(http) == []
    assert json.loads((await settle(http, "ack", message["lease"])).body) == {"leases": [{"ok": True}]}
    assert statistics(http).acknowledged == 1
    assert statistics(http).unfinished == 0


async def test_many_messages_come_at_once_in_order_and_are_settled_at_once(http: Http) -> None:
    await made(http.broker, *[b"%d" % n for n in range(1000)])

    found = await leased(http, "max=1000&max_bytes=10000000")

    assert values(found) == [str(n) for n in range(1000)]
    response = await settle(http, "ack", *[each["lease"] for each in found])
    assert response.json == {"leases": [{"ok": True}] * 1000}
    assert statistics(http).unfinished == 0


async def test_without_max_one_message_is_leased(http: Http) -> None:
    await made(http.broker, b"a", b"b")

    assert values(await leased(http, "")) == ["a"]


async def test_a_nack_brings_it_again_after_its_delay(make_http: MakeHttp) -> None:
    clock = ManualClock()
    http = await make_http(clock=clock)
    await made(http.broker, b"a", b"b")
    first, second = await leased(http)

    assert (await settle(http, "nack", first["lease"], error="no room")).status == 200
    assert (await settle(http, "nack", second["lease"], delay_ms=20_000)).status == 200

    (again,) = await leased(http)
    assert (again["value"], again["delivery_count"]) == ("a", 2)
    clock.advance(21)
    assert values(await leased(http)) == ["b"]


async def test_a_rejected_message_is_a_dead_letter_with_its_reason(http: Http) -> None:
    await made(http.broker, b"a")
    (message,) = await leased(http)

    assert (await settle(http, "reject", message["lease"], reason="no such address")).status == 200

    async with asyncio.timeout(10):
        while not (letters := (await done(http, "GET", f"{QUEUE}/dead-letters"))["messages"]):
            await asyncio.sleep(0.001)
    assert [(each["value"], each["reason"], each["error"]) for each in letters] == [
        ("a", "REJECTED", "no such address")
    ]


async def test_an_extended_lease_lasts_longer_and_a_released_one_does_not_count(make_http: MakeHttp) -> None:
    clock = ManualClock()
    http = await make_http(clock=clock)
    await made(http.broker, b"a", lease_ms=10_000)
    (message,) = await leased(http)

    assert (await settle(http, "extend", message["lease"], lease_ms=60_000)).status == 200
    clock.advance(30)
    assert await leased(http) == []
    assert (await settle(http, "release", message["lease"])).status == 200

    (again,) = await leased(http)
    assert again["delivery_count"] == 1


async def test_a_lease_that_ended_settles_nothing_even_when_the_same_consumer_got_the_message_again(
    make_http: MakeHttp,
) -> None:
    clock = ManualClock()
    http = await make_http(clock=clock)
    await made(http.broker, b"a", lease_ms=10_000)
    (old,) = await leased(http, "consumer=c1")
    clock.advance(11)
    (new,) = await leased(http, "consumer=c1")

    response = await settle(http, "ack", old["lease"])

    assert (response.status, response.code) == (409, "LEASE_EXPIRED")
    assert (await settle(http, "ack", new["lease"])).status == 200


async def test_some_that_fail_are_reported_one_by_one(http: Http) -> None:
    await made(http.broker, b"a", b"b")
    first, second = await leased(http)
    await settle(http, "ack", first["lease"])

    mixed = await settle(http, "ack", first["lease"], second["lease"], "nonsense")

    assert mixed.status == 207
    entries = mixed.json["leases"]
    assert entries[1] == {"ok": True}
    assert [entries[0]["error"]["code"], entries[2]["error"]["code"]] == ["NOT_LEASED", "INVALID_ARGUMENT"]
    assert [entries[0]["error"]["status"], entries[2]["error"]["status"]] == [409, 400]


async def test_when_all_fail_for_one_cause_the_response_is_that_problem(http: Http) -> None:
    await made(http.broker, b"a", b"b")
    tokens = [each["lease"] for each in await leased(http)]
    await settle(http, "ack", *tokens)

    again = await settle(http, "ack", *tokens)
    nonsense = await settle(http, "ack", "x", "y")

    assert (again.status, again.code) == (409, "NOT_LEASED")
    assert (nonsense.status, nonsense.code) == (400, "INVALID_ARGUMENT")


async def test_a_token_settles_nothing_on_another_queue(http: Http) -> None:
    await made(http.broker, b"a")
    await http.broker.queues.create("other", ["emails"])
    (message,) = await leased(http)
    await done(http, "POST", "/v1/queues/other/lease")

    response = await call(http, "POST", "/v1/queues/other/ack", {"leases": [message["lease"]]})

    assert (response.status, response.code) == (409, "NOT_LEASED")
    assert statistics(http).leased == 1


async def test_one_lease_is_settled_by_hand_without_a_body(http: Http) -> None:
    await made(http.broker, b"a", b"b")
    first, second = await leased(http)

    assert (await http.post(f"{QUEUE}/ack?lease={first['lease']}")).json == {"leases": [{"ok": True}]}
    nacked = await http.post(f"{QUEUE}/nack?lease={second['lease']}&delay_ms=0&error=later")

    assert nacked.json == {"leases": [{"ok": True}]}
    (again,) = await leased(http)
    assert again["value"] == "b"


async def test_single_message_comes_raw_with_its_metadata_in_headers(http: Http) -> None:
    await made(http.broker)
    await http.post(f"{QUEUE}/messages", b"\x00\xff", content_type="image/png", sparrow_key="k")

    response = await http.post(f"{QUEUE}/lease", accept="application/octet-stream")

    assert (response.status, response.body) == (200, b"\x00\xff")
    assert response.headers["content-type"] == "image/png"
    assert response.headers["sparrow-key"] == "k"
    assert response.headers["sparrow-delivery-count"] == "1"
    assert (await http.post(f"{QUEUE}/lease", accept="application/octet-stream")).status == 204
    assert (await settle(http, "ack", response.headers["sparrow-lease"])).status == 200


async def test_binary_content_is_base64(http: Http) -> None:
    await made(http.broker, b"\xff")

    (message,) = await leased(http)

    assert message["value_base64"] == "/w=="
    assert "value" not in message


# ── consumers ─────────────────────────────────────────────────────────────────────────────────────


async def test_named_consumers_hold_their_own_and_are_seen_in_the_statistics(http: Http) -> None:
    await made(http.broker, b"a", b"b", b"c", prefetch=1)

    found = [await leased(http, f"consumer={name}&max=3") for name in ("c1", "c2", "c1")]

    assert [values(each) for each in found] == [["a"], ["b"], []]
    assert {(c.consumer_id, c.leased) for c in statistics(http).consumers} == {("c1", 1), ("c2", 1)}


async def test_subscribers_take_for_themselves(http: Http) -> None:
    await made(http.broker, b"a", subscribers=["billing", "shipping"])

    billing = await leased(http, "subscriber=billing")
    shipping = await leased(http, "subscriber=shipping")

    assert values(billing) == values(shipping) == ["a"]
    assert (await settle(http, "ack", billing[0]["lease"])).status == 200
    assert statistics(http).unfinished == 1
    assert (await settle(http, "ack", shipping[0]["lease"])).status == 200
    assert statistics(http).unfinished == 0
    assert (await call(http, "POST", f"{QUEUE}/lease")).status == 400
    assert (await call(http, "POST", f"{QUEUE}/lease?subscriber=nobody")).status == 400


async def test_a_consumer_is_forgotten_when_it_was_idle_and_its_leases_outlive_that(
    make_http: MakeHttp,
) -> None:
    clock = ManualClock()
    http = await make_http(clock=clock)
    await made(http.broker, b"a", lease_ms=300_000)
    consumers = Consumers(http.broker, idle_s=60)
    asked = LeaseRequest("emails", 10, 1 << 20, "c1")
    consumer, (found,) = await consumers.lease(asked, wait_ms=0, principal=ANONYMOUS)

    clock.advance(120)
    consumers.sweep(clock.monotonic())
    assert len(consumers) == 1, "it holds something"
    await consumers.close()

    assert not consumer.is_open
    assert statistics(http).leased == found.records == 1


async def test_idle_consumers_are_swept_and_more_than_the_limit_never_kept(make_http: MakeHttp) -> None:
    clock = ManualClock()
    http = await make_http(clock=clock)
    await made(http.broker)
    consumers = Consumers(http.broker, max_open=5, idle_s=60)

    for number in range(20):
        asked = LeaseRequest("emails", 10, 1 << 20, f"c{number}")
        await consumers.lease(asked, wait_ms=0, principal=ANONYMOUS)
    assert len(consumers) == len(statistics(http).consumers) == 5
    clock.advance(61)
    consumers.sweep(clock.monotonic())

    assert len(consumers) == len(statistics(http).consumers) == 0


async def test_a_lie_about_the_subscriber_leaves_no_consumer_behind(http: Http) -> None:
    await made(http.broker)
    consumers = Consumers(http.broker)
    asked = LeaseRequest("emails", 10, 1 << 20, "c1")
    await consumers.lease(asked, wait_ms=0, principal=ANONYMOUS)

    with pytest.raises(InvalidArgument):
        await consumers.lease(asked._replace(subscriber="nobody"), wait_ms=0, principal=ANONYMOUS)
    assert len(consumers) == 1
    await consumers.close()

    assert statistics(http).consumers == []


# ── waiting ───────────────────────────────────────────────────────────────────────────────────────


async def test_a_lease_waits_for_a_message(http: Http) -> None:
    await made(http.broker)
    waiting = asyncio.create_task(leased(http, "wait_ms=10000"))
    await until_waiting(http)

    await http.broker.records.publish("emails", 0, batch(b"late"))

    assert values(await waiting) == ["late"]


async def test_a_hundred_waiting_requests_of_one_consumer_get_a_message_each(http: Http) -> None:
    await made(http.broker)
    waiting = [asyncio.create_task(leased(http, "wait_ms=10000&consumer=c")) for _ in range(100)]
    await until_waiting(http, 100)

    await http.broker.records.publish("emails", 0, batch(*[b"%d" % n for n in range(100)]))

    found = [message for each in waiting for message in await each]
    assert sorted(map(int, values(found))) == list(range(100))


async def test_a_client_that_hangs_up_while_it_waits_swallows_nothing(http: Http) -> None:
    await made(http.broker)
    async with Raw(http.port) as raw:
        raw.send(request("POST", f"{QUEUE}/lease?wait_ms=60000", b""))
        await until_waiting(http)
    await http.broker.records.publish("emails", 0, batch(b"a"))

    (message,) = await leased(http, "wait_ms=10000")

    assert (message["value"], message["delivery_count"]) == ("a", 1)


async def test_a_client_that_hangs_up_in_the_moment_of_the_lease_gives_it_back_uncounted(http: Http) -> None:
    await made(http.broker)
    for number in range(20):
        async with Raw(http.port) as raw:
            raw.send(request("POST", f"{QUEUE}/lease?wait_ms=60000", b""))
            await until_waiting(http)
            http.broker.records.publish("emails", 0, batch(b"%d" % number))
            raw.writer.transport.abort()
        (message,) = await leased(http, "wait_ms=10000")
        # A response that was sent keeps its lease; here the connection was closed before.
        assert (message["value"], message["delivery_count"]) == (str(number), 1)
        await settle(http, "ack", message["lease"])


async def test_drain_ends_waiting_requests_with_an_empty_response(http: Http) -> None:
    await made(http.broker)
    async with Raw(http.port) as raw:
        raw.send(request("POST", f"{QUEUE}/lease?wait_ms=60000", b""))
        await until_waiting(http)

        await http.frontend.drain(2)

        assert (await raw.response()).json["messages"] == []


async def test_deleting_a_queue_ends_waiting_requests(http: Http) -> None:
    await made(http.broker)
    waiting = asyncio.create_task(call(http, "POST", f"{QUEUE}/lease?wait_ms=60000"))
    await until_waiting(http)

    await http.broker.queues.delete("emails")

    assert (await waiting).code == "UNKNOWN_QUEUE"


async def test_policy_change_does_not_disturb_waiting_or_settling_consumers(http: Http) -> None:
    await made(http.broker, b"a")
    (message,) = await leased(http)
    waiting = asyncio.create_task(leased(http, "wait_ms=10000"))
    await until_waiting(http)

    configured, settled = await asyncio.gather(
        http.broker.queues.configure("emails", {"order": "key"}), settle(http, "ack", message["lease"])
    )

    assert configured.policy["order"] == "key"
    assert settled.status == 200, settled
    await http.broker.records.publish("emails", 0, batch(b"b"))
    assert values(await waiting) == ["b"]


# ── looking ───────────────────────────────────────────────────────────────────────────────────────


async def test_messages_are_looked_at_by_state(http: Http) -> None:
    await made(http.broker, b"a", b"b", b"c")
    await leased(http, "max=1&consumer=c1")
    await until_scanned(http)

    every = (await done(http, "GET", f"{QUEUE}/messages"))["messages"]
    held = (await done(http, "GET", f"{QUEUE}/messages?state=leased"))["messages"]
    skipped = (await done(http, "GET", f"{QUEUE}/messages?state=ready&skip=1&limit=1"))["messages"]

    assert [(each["value"], each["state"]) for each in every] == [
        ("b", "ready"),
        ("c", "ready"),
        ("a", "leased"),
    ]
    assert [(each["value"], each["consumer"]) for each in held] == [("a", "c1")]
    assert values(skipped) == ["c"]


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────


async def test_parameters_that_cannot_be_are_refused(http: Http) -> None:
    await made(http.broker, b"a")
    for query in (
        "max=0",
        "max=-1",
        "max=99999999999999999999999",
        "max=x",
        "wait_ms=-1",
        "wait_ms=86400000",
        "max_bytes=0",
        "consumer=%00",
        "consumer=" + "x" * 300,
        "subscriber=%ff",
        "encoding=utf-16",
        "mx=1",
        "max=1&max=2",
    ):
        response = await call(http, "POST", f"{QUEUE}/lease?{query}")
        assert response.status == 400, (query, response)
        assert response.code
    for query in ("state=done", "state=", "limit=0", "skip=-1", "limit=100000000"):
        response = await call(http, "GET", f"{QUEUE}/messages?{query}")
        assert response.status == 400, (query, response)
    assert statistics(http).leased == 0


BAD_SETTLEMENTS: list[tuple[str, Any]] = [
    ("ack", {}),
    ("ack", []),
    ("ack", {"leases": "x"}),
    ("ack", {"leases": [7]}),
    ("ack", {"leases": [], "delay_ms": 1}),
    ("ack", {"leases": ["x"] * 20_000}),
    ("nack", {"leases": [], "delay_ms": -1}),
    ("nack", {"leases": [], "delay_ms": 2**63}),
    ("nack", {"leases": [], "delay_ms": 2**70}),
    ("nack", {"leases": [], "delay_ms": "1"}),
    ("nack", {"leases": [], "error": "x" * 10_000}),
    ("nack", {"leases": [], "error": "\ud800"}),
    ("reject", {"leases": [], "reason": None}),
    ("extend", {"leases": [], "lease_ms": 0}),
    ("extend", {"leases": [], "lease_ms": 10**12}),
    ("release", {"leases": ["\ud800"]}),
]


async def test_settlements_that_cannot_be_read_are_refused(http: Http) -> None:
    await made(http.broker)
    for verb, body in BAD_SETTLEMENTS:
        response = await call(http, "POST", f"{QUEUE}/{verb}", body)
        assert response.status == 400, (verb, body, response)
        assert response.code
    for content in (b"{", b"\xff", b"[" * 50_000, b'{"leases": [' + b"9" * 5000 + b"]}"):
        response = await http.post(f"{QUEUE}/ack", content)
        assert response.status == 400, (content[:20], response)
    large = await http.post(f"{QUEUE}/ack", b'{"leases": [' + b" " * (5 << 20) + b"]}")
    assert (large.status, large.code) == (413, "BODY_TOO_LARGE")
    for query in ("", "?lease=x&delay_ms=1", "?lease=a&lease=b", "?lease="):
        response = await http.post(f"{QUEUE}/ack{query}")
        assert response.status == 400, (query, response)


async def test_tokens_that_lie_settle_nothing(http: Http) -> None:
    await made(http.broker, b"a", b"b")
    (message,) = await leased(http, "max=1&consumer=c1")
    true = parse_token(message["lease"])
    for token in (
        LeaseToken(true.queue, "c2", "", "emails", 0, 0, 1),
        LeaseToken(true.queue, "c1", "", "emails", 0, 1, 1),
        LeaseToken(true.queue, "c1", "", "emails", 0, 2**61, 1),
        LeaseToken(true.queue, "c1", "", "emails", 7, 0, 1),
        LeaseToken(true.queue, "c1", "", "other", 0, 0, 1),
        LeaseToken(true.queue, "c1", "nobody", "emails", 0, 0, 1),
        LeaseToken(true.queue, "c1\0", "", "emails", 0, 0, 1),
        LeaseToken(true.queue, "c1", "", "emails", 0, 0, 2),
        LeaseToken(true.queue + 1, "c1", "", "emails", 0, 0, 1),
    ):
        response = await settle(http, "ack", token_text(token))
        assert response.status in (400, 409), (token, response)
    many = [token_text(LeaseToken(true.queue, f"c{n}", "", "emails", 0, 0, 1)) for n in range(500)]
    assert (await settle(http, "ack", *many[2:])).status in (400, 409)
    assert statistics(http).acknowledged == 0
    assert (await settle(http, "ack", message["lease"])).status == 200


async def test_an_unknown_queue_is_not_found(http: Http) -> None:
    for method, path, body in (
        ("POST", "lease", None),
        ("POST", "ack", {"leases": []}),
        ("POST", "messages", None),
        ("GET", "messages", None),
        ("GET", "dead-letters", None),
        ("GET", "redrive", None),
        ("POST", "redrive", None),
        ("DELETE", "redrive", None),
    ):
        response = await call(http, method, f"/v1/queues/none/{path}", body)
        assert (response.status, response.code) == (404, "UNKNOWN_QUEUE"), (method, path, response)


async def test_record_too_large_after_decompression_holds_up_nobody(http: Http) -> None:
    await made(http.broker)
    for values_of_batch in ([bytes(65 << 20)], [b"fine"], [bytes(40 << 20)], [bytes(40 << 20)], [b"later"]):
        bomb = batch_of(*values_of_batch, clock=http.broker.clock, compression=Compression.ZSTD)
        # It may lie in a log, although no client can publish a batch that becomes so large.
        await http.broker.records.publish("emails", 0, bomb, is_built_here=True)
    broker, consumers = http.broker, Consumers(http.broker)
    asked = LeaseRequest("emails", 10, 1 << 20)

    consumer, leased_batches = await consumers.lease(asked, wait_ms=0, principal=ANONYMOUS)
    found = await unpack(leased_batches)
    await consumers.release(consumer, found.released)
    for refused in found.refused:
        await consumers.refuse(consumer, *refused)

    assert [len(each.record.value or b"") for each in found.deliveries] == [4, 40 << 20]
    assert [refused.error.code for refused in found.refused] == ["RECORD_TOO_LARGE"]
    now = broker.queues.describe("emails").statistics
    assert (now.delayed, now.leased, now.ready) == (1, 2, 2)
    await consumers.close()


# ── quotas and memory ─────────────────────────────────────────────────────────────────────────────


async def test_a_client_that_hangs_up_while_it_is_throttled_has_leased_nothing(http: Http) -> None:
    await made(http.broker, b"x" * 1000, b"b")
    change = QuotaChange((("user", None),), (("consumer_byte_rate", 1.0),))
    assert await http.broker.quotas.alter([change]) == [None]
    assert len(await leased(http, "max=1")) == 1
    async with Raw(http.port) as raw:
        raw.send(request("POST", f"{QUEUE}/lease?max=1", b""))
        await http.get("/healthz")
    async with asyncio.timeout(10):
        while http.frontend.connections:
            await asyncio.sleep(0.001)
    await until_scanned(http)
    assert (statistics(http).ready, statistics(http).leased) == (1, 1)


async def test_a_client_that_hangs_up_while_its_response_is_made_has_leased_nothing(
    http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made(http.broker, b"a", b"b")
    begun, gone = asyncio.Event(), asyncio.Event()

    async def slowly(found: Any) -> Any:
        begun.set()
        await gone.wait()
        return await unpack(found)

    monkeypatch.setattr(routes, "unpack", slowly)
    async with Raw(http.port) as raw:
        raw.send(request("POST", f"{QUEUE}/lease?max=10", b""))
        async with asyncio.timeout(10):
            await begun.wait()
    async with asyncio.timeout(10):
        while http.frontend.connections:
            await asyncio.sleep(0.001)
        gone.set()
        while statistics(http).ready < 2:
            await asyncio.sleep(0.001)
    assert [each["delivery_count"] for each in await leased(http)] == [1, 1]


async def test_unread_responses_make_leases_smaller_but_never_empty(make_http: MakeHttp) -> None:
    http = await make_http(send_budget_bytes=20_000_000)
    for _ in range(20):
        await made_more(http, b"x" * 200_000)
    assert len(await leased(http, "max=20&max_bytes=10000000")) == 9
    with http.frontend.send_budget.backlog(lambda: 0, lambda _: None).reservation() as others:
        others.resize(13_900_000)
        assert len(await leased(http, "max=20&max_bytes=10000000")) == 5
        peeked = await done(http, "GET", f"{QUEUE}/messages?limit=10&max_bytes=10000000")
        assert len(peeked["messages"]) == 3
    async with asyncio.timeout(10):
        while http.frontend.send_budget.used_bytes():
            await asyncio.sleep(0.001)


async def made_more(http: Http, value: bytes) -> None:
    if http.broker.parts.topic_registry.find("emails") is None:
        await made(http.broker, value)
    else:
        await http.broker.records.publish("emails", 0, batch_of(value, clock=http.broker.clock))
