from __future__ import annotations

import asyncio
from typing import Any

from tests.http_admin.calls import call, done
from tests.http_frontend.conftest import Http
from tests.http_queues.lease_calls import QUEUE, leased, made, settle, statistics, values
from tests.native_frontend.raw import batch_of


async def letters(http: Http, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await done(http, "GET", f"{QUEUE}/dead-letters?limit=1000&{query}"))[
        "messages"
    ]
    return found


async def rejected(http: Http, *messages: bytes, reason: str = "broken") -> None:
    """Create the queue `emails` with these messages, all of which become dead letters."""
    before = statistics(http).dead_lettered
    await http.broker.records.publish("emails", 0, batch_of(*messages))
    found: list[dict[str, Any]] = []
    while len(found) < len(messages):
        found += await leased(http, "max=1000&wait_ms=5000")
    await settle(http, "reject", *[each["lease"] for each in found], reason=reason)
    async with asyncio.timeout(10):
        while statistics(http).dead_lettered < before + len(messages):
            await asyncio.sleep(0.001)


async def redriven(http: Http) -> dict[str, Any]:
    async with asyncio.timeout(10):
        while (progress := await done(http, "GET", f"{QUEUE}/redrive"))["is_running"]:
            await asyncio.sleep(0.001)
    found: dict[str, Any] = progress
    return found


async def test_dead_letters_say_why_and_from_where_and_stay(http: Http) -> None:
    await made(http.broker)
    await rejected(http, b"a")

    (letter,) = await letters(http)

    assert (letter["topic"], letter["value"], letter["state"]) == ("emails.dead", "a", "ready")
    assert (letter["reason"], letter["error"], letter["delivery_count"]) == ("REJECTED", "broken", 1)
    origin = letter["origin"]
    assert (origin["topic"], origin["partition"], origin["offset"], origin["subscriber"]) == (
        "emails",
        0,
        0,
        "",
    )
    assert origin["first_delivery_ms"] == origin["last_delivery_ms"] > 0
    assert letter["headers"] == []
    assert await letters(http) == [letter]


async def test_a_queue_without_dead_letters_has_an_empty_list(http: Http) -> None:
    await made(http.broker, b"a")

    assert await done(http, "GET", f"{QUEUE}/dead-letters") == {"messages": [], "next_skip": None}


async def test_letters_are_filtered_and_paged(http: Http) -> None:
    await made(http.broker)
    await rejected(http, *[b"%d" % n for n in range(40)], reason="first kind")
    await rejected(http, b"x", b"y", reason="second kind")

    assert values(await letters(http, "error_contains=second")) == ["x", "y"]
    assert values(await letters(http, "reason=DELIVERY_LIMIT")) == []
    assert values(await letters(http, "until_ms=1")) == []
    assert len(await letters(http, "topic=emails&partition=0&since_ms=1")) == 42
    found: list[str] = []
    skip = 0
    while skip is not None:
        page = await done(http, "GET", f"{QUEUE}/dead-letters?limit=7&skip={skip}")
        found += values(page["messages"])
        skip = page["next_skip"]
    assert found == [*map(str, range(40)), "x", "y"]


async def test_letters_of_other_queues_on_the_same_topic_are_not_shown(http: Http) -> None:
    await made(http.broker, dead_letter_topic="graves")
    await http.broker.queues.create("other", policy={"dead_letter_topic": "graves"}, partitions=1)
    await rejected(http, b"mine")

    found = await done(http, "GET", "/v1/queues/other/dead-letters")

    assert found == {"messages": [], "next_skip": None}
    assert values(await letters(http)) == ["mine"]


async def test_letters_are_sent_back_as_the_filter_says(http: Http) -> None:
    await made(http.broker)
    await rejected(http, b"a", reason="one")
    await rejected(http, b"b", reason="two")

    begun = await done(http, "POST", f"{QUEUE}/redrive", {"where": {"error_contains": "two"}, "max": 5}, 202)

    assert begun["is_running"]
    assert await redriven(http) == {"moved": 1, "skipped": 1, "failed": 0, "is_running": False, "error": ""}
    assert values(await leased(http, "wait_ms=5000")) == ["b"]
    assert values(await letters(http)) == ["a"]


async def test_a_single_letter_is_sent_back(http: Http) -> None:
    await made(http.broker)
    await rejected(http, b"a", b"b", b"c")
    middle = (await letters(http))[1]

    await done(
        http, "POST", f"{QUEUE}/dead-letters/{middle['partition']}/{middle['offset']}/redrive", status=202
    )

    assert (await redriven(http))["moved"] == 1
    assert values(await leased(http, "wait_ms=5000")) == [middle["value"]] == ["b"]
    assert values(await letters(http)) == ["a", "c"]
    await done(http, "POST", f"{QUEUE}/dead-letters/0/99999/redrive", status=202)
    assert (await redriven(http))["moved"] == 0


async def test_a_redrive_is_stopped(http: Http) -> None:
    await made(http.broker)
    await rejected(http, *[b"%d" % n for n in range(30)])

    await done(http, "POST", f"{QUEUE}/redrive", {"per_second": 0.01}, 202)
    assert (await call(http, "POST", f"{QUEUE}/redrive")).code == "CONFLICT"
    stopped = await done(http, "DELETE", f"{QUEUE}/redrive")

    assert not stopped["is_running"]
    assert stopped["moved"] <= 1


NO_REDRIVES: list[Any] = [
    [],
    {"max": -1},
    {"max": 2**63},
    {"per_second": -1},
    {"per_second": float("nan")},
    {"per_second": 1e300},
    {"where": {"partition": -1}},
    {"where": {"since_ms": 2**63}},
    {"where": {"key": "a", "key_base64": "YQ=="}},
    {"where": {"key_base64": "?"}},
    {"where": {"key": "\ud800"}},
    {"where": {"planet": "x"}},
]


async def test_impossible_redrive_or_listing_is_refused(http: Http) -> None:
    await made(http.broker)
    for body in NO_REDRIVES:
        response = await call(http, "POST", f"{QUEUE}/redrive", body)
        assert response.status == 400, (body, response)
        assert response.code
    for query in (
        "limit=0",
        "limit=100000",
        "skip=-1",
        "encoding=x",
        "partition=-1",
        "key=a&key_base64=YQ==",
        "q=1",
    ):
        response = await call(http, "GET", f"{QUEUE}/dead-letters?{query}")
        assert response.status == 400, (query, response)
    for place in ("-1/0", "0/-1", f"0/{2**63}", "x/y"):
        response = await call(http, "POST", f"{QUEUE}/dead-letters/{place}/redrive")
        assert response.status == 400, (place, response)
    await http.broker.queues.create("drops", policy={"dead_letter_topic": None})
    assert (await call(http, "GET", "/v1/queues/drops/dead-letters")).status == 400
