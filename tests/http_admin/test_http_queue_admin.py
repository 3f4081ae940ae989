from __future__ import annotations

import asyncio

import pytest

from sparrow.broker.queues import service
from tests.http_admin.calls import call, done
from tests.http_admin.test_http_topics import filled
from tests.http_frontend.conftest import Http


async def test_a_queue_is_made_described_configured_and_deleted(http: Http) -> None:
    body = {"name": "emails", "policy": {"lease_ms": 5000}, "partitions": 2}
    made = await done(http, "POST", "/v1/queues", body, 201)

    assert (made["name"], made["kind"], made["topics"]) == ("emails", "queue", ["emails"])
    assert made["policy"]["lease_ms"] == 5000
    assert http.broker.parts.topic_registry.get("emails").listing().partition_count == 2
    await filled(http.broker, 3, "emails")
    described = await done(http, "GET", "/v1/queues/emails")
    assert described["statistics"]["ready"] == 3
    assert [each["name"] for each in (await done(http, "GET", "/v1/queues?pattern=em*"))["queues"]] == [
        "emails"
    ]

    changes = {"set": {"backoff_ms": 100, "dead_letter_topic": None}, "unset": ["lease_ms"]}
    changed = await done(http, "PATCH", "/v1/queues/emails", changes)
    policy = changed["policy"]
    assert (policy["backoff_ms"], policy["dead_letter_topic"], policy["lease_ms"]) == (100, None, 30_000)

    await done(http, "DELETE", "/v1/queues/emails", status=204)
    assert (await call(http, "GET", "/v1/queues/emails")).code == "UNKNOWN_QUEUE"
    assert http.broker.parts.topic_registry.find("emails") is not None


async def test_put_is_idempotent_and_another_policy_a_conflict(http: Http) -> None:
    body = {"policy": {"order": "key"}, "topics": ["a", "b"]}

    first = await done(http, "PUT", "/v1/queues/q", body)
    again = await done(http, "PUT", "/v1/queues/q", body)

    assert again["id"] == first["id"]
    assert (await call(http, "PUT", "/v1/queues/q", {})).code == "QUEUE_EXISTS"


async def test_a_queue_is_paused_resumed_and_purged(http: Http) -> None:
    await done(http, "PUT", "/v1/queues/q", {"partitions": 1})
    await filled(http.broker, 4, "q")

    await done(http, "POST", "/v1/queues/q/pause", status=204)
    assert (await done(http, "GET", "/v1/queues/q"))["is_paused"]
    await done(http, "POST", "/v1/queues/q/resume", status=204)
    assert not (await done(http, "GET", "/v1/queues/q"))["is_paused"]
    assert await done(http, "POST", "/v1/queues/q/purge") == {"purged": 4}


async def test_policies_have_the_words_and_units_of_the_configuration_file(http: Http) -> None:
    policy = {"lease": "1m30s", "backoff_delay": "2s", "jitter": 0.5}
    made = await done(http, "PUT", "/v1/queues/q", {"policy": policy})
    assert (made["policy"]["lease_ms"], made["policy"]["backoff_ms"]) == (90_000, 2_000)
    other = await call(http, "PUT", "/v1/queues/q", {"policy": {**policy, "lease": "30s"}})
    assert other.status == 409
    assert "lease is 1m30s, not 30s" in other.json["detail"]
    changed = await done(http, "PATCH", "/v1/queues/q", {"set": {"expiry": "1d"}, "unset": ["lease"]})
    assert (changed["policy"]["expiry_ms"], changed["policy"]["lease_ms"]) == (86_400_000, 30_000)
    for body in ({"set": {"expirey": "1d"}}, {"unset": ["expirey"]}):
        wrong = await call(http, "PATCH", "/v1/queues/q", body)
        assert wrong.status == 400
        assert "did you mean 'expiry'?" in wrong.json["detail"]


NO_QUEUES = [
    {"policy": {"lease_ms": 2**63}},
    {"policy": {"lease_ms": "soon"}},
    {"policy": {"lease_ms": {}}},
    {"policy": {"no_such": 1}},
    {"policy": {"backoff_jitter": float("nan")}},
    {"policy": {"backoff_jitter": 10**400}},
    {"policy": {"subscribers": ["a", "a"]}},
    {"policy": {"subscribers": [["a"]]}},
    {"policy": {"start": {"timestamp": -1}}},
    {"policy": {"start": []}},
    {"policy": {"order": ["key"]}},
    {"policy": {"order": {"a": 1}}},
    {"policy": {"dead_letter_topic": "q"}},
    {"policy": {"dead_letter_topic": "a/b"}},
    {"policy": {"dead_letter_topic": "\ud800"}},
    {"topics": ["a", "a"]},
    {"topics": ["a/b"]},
    {"topics": "a"},
    {"topics": ["a"] * 2000},
    {"partitions": -2},
]


async def test_invalid_queue_is_refused(http: Http) -> None:
    for body in NO_QUEUES:
        response = await call(http, "PUT", "/v1/queues/q", body)

        assert response.status == 400, (body, response)
        assert response.code
        assert await done(http, "GET", "/v1/queues") == {"queues": []}


# ── subscribers ───────────────────────────────────────────────────────────────────────────────────

ONE = "/v1/queues/orders/subscribers/billing"


async def test_plain_subscribers_make_a_queue_an_all_of_queue(http: Http) -> None:
    await done(http, "PUT", "/v1/queues/orders", {"partitions": 1})
    await filled(http.broker, 2)

    made = await done(http, "PUT", ONE, {})

    assert made["is_subscriber"]
    assert made["webhook"] is None
    assert made["messages"]["ready"] == 2
    assert (await done(http, "GET", "/v1/queues/orders"))["policy"]["subscribers"] == ["billing"]
    assert await done(http, "GET", "/v1/queues/orders/subscribers") == {"subscribers": [made]}
    await done(http, "DELETE", ONE, status=204)
    assert await done(http, "GET", "/v1/queues/orders/subscribers") == {"subscribers": []}
    assert (await call(http, "GET", ONE)).status == 404


async def test_a_webhook_is_made_shown_without_its_secret_rotated_paused_and_forgotten(http: Http) -> None:
    await done(http, "PUT", "/v1/queues/orders", {})
    body = {"url": "https://hooks.example.org/x", "headers": {"X-Key": "hidden"}, "add_subscriber": True}

    made = await done(http, "PUT", ONE, body)

    assert made["is_subscriber"]
    assert made["webhook"]["settings"]["url"] == body["url"]
    assert made["webhook"]["secret"].startswith("whsec_")
    shown = await done(http, "GET", ONE)
    assert shown["webhook"]["secret"] == ""
    assert "hidden" not in str(shown["webhook"]["settings"]["headers"]).replace("'hidden'", "")
    rotated = await done(http, "POST", f"{ONE}/rotate-secret", {"keep_ms": 1000})
    assert rotated["secret"].startswith("whsec_")
    assert rotated["secret"] != made["webhook"]["secret"]
    assert (await done(http, "POST", f"{ONE}/pause"))["is_paused"]
    assert not (await done(http, "POST", f"{ONE}/resume"))["is_paused"]
    slower = await done(http, "PUT", ONE, {"rate": 2.5})
    assert (slower["webhook"]["settings"]["rate"], slower["webhook"]["settings"]["url"]) == (2.5, body["url"])

    await done(http, "DELETE", f"{ONE}?keep_subscriber=true", status=204)
    assert (await done(http, "GET", ONE))["is_subscriber"]
    await done(http, "DELETE", ONE, status=204)
    assert (await call(http, "GET", ONE)).code == "UNKNOWN_WEBHOOK"


NO_WEBHOOKS = [
    {"url": "ftp://example.org"},
    {"url": "http://169.254.169.254/latest"},
    {"url": "http://127.0.0.1:1"},
    {"url": "https://user:secret@example.org"},
    {"url": 7},
    {"url": None},
    {"url": "https://example.org", "concurrency": 2**63},
    {"url": "https://example.org", "concurrency": 1e400},
    {"url": "https://example.org", "rate": -1},
    {"url": "https://example.org", "is_trusted": True},
    {"url": "https://example.org", "headers": {"a\r\nb": "c"}},
    {"url": "https://example.org", "headers": {"a": "b\r\nc"}},
    {"url": "https://example.org", "secrets": ["short"]},
    {"rate": 1},
    {"add_subscriber": True},
]


async def test_invalid_webhook_is_refused_and_changes_nothing(http: Http) -> None:
    await done(http, "PUT", "/v1/queues/orders", {})

    for body in NO_WEBHOOKS:
        response = await call(http, "PUT", ONE, body)

        assert response.status == 400, (body, response)
        assert response.code
        assert await done(http, "GET", "/v1/queues/orders/subscribers") == {"subscribers": []}


async def test_a_long_list_of_queues_lets_others_have_their_turn(
    http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "LISTED_AT_ONCE", 5)
    queues = http.broker.queues
    for number in range(20):
        await queues.create(f"q{number:02}")
    listing = asyncio.create_task(queues.listing_in_steps("q*"))
    await asyncio.sleep(0)
    assert not listing.done()
    assert await listing == queues.listing("q*")
