"""Events of acts and refusals, and their limits. The clock is moved by the tests."""

from __future__ import annotations

import asyncio
import logging

import pytest

from sparrow.base.clock import ManualClock
from sparrow.base.errors import DiskFull, NotAuthenticated, NotAuthorized, TopicExists
from sparrow.broker.access.access import Access
from sparrow.broker.access.authz import AllowAll, Operation, Principal, ReportingAuthorizer, ResourceType
from sparrow.broker.audit.audit import Audit
from sparrow.broker.audit.event import MAX_ITEMS, MAX_TEXT, AuditEvent, AuditOutcome, names, safe
from sparrow.broker.audit.limiter import PER_SOURCE, TOTAL, AuditSource, EventLimiter

ALICE = Principal("alice", host="10.0.0.7", listener="native")
TOPIC = ResourceType.TOPIC


class DenyAll(AllowAll):
    def allows(self, *_: object) -> bool:
        return False


class SentEvents:
    """An audit and the events that it sent."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.audit = Audit(self.clock)
        self.events: list[AuditEvent] = []
        self.audit.channels.append(self.events.append)
        self.access = Access(ReportingAuthorizer(DenyAll(), self.audit.refused))

    def refuse(self, resource: str = "orders", principal: Principal = ALICE) -> None:
        with pytest.raises(NotAuthorized):
            self.access.require(principal, Operation.WRITE, TOPIC, resource)

    def outcomes(self) -> list[tuple[str, str, str]]:
        return [(each.action, each.outcome.value, each.error) for each in self.events]


@pytest.fixture
def sent() -> SentEvents:
    return SentEvents()


def fail_in(sent: SentEvents, error: BaseException) -> None:
    with pytest.raises(type(error)), sent.audit.act(ALICE, "topic.create", TOPIC, "orders"):
        raise error


@pytest.mark.parametrize(
    ("error", "outcome", "code"),
    [
        (TopicExists("it exists"), "failed", "TOPIC_EXISTS"),
        (DiskFull("full"), "failed", "DISK_FULL"),
        (KeyError("a bug"), "failed", "INTERNAL"),
        (asyncio.CancelledError(), "unfinished", ""),
    ],
)
def test_an_act_that_ends_by_an_error_is_one_event(
    sent: SentEvents, error: BaseException, outcome: str, code: str
) -> None:
    fail_in(sent, error)
    assert sent.outcomes() == [("topic.create", outcome, code)]


async def test_a_refusal_inside_of_an_act_is_the_act(sent: SentEvents) -> None:
    with pytest.raises(NotAuthorized), sent.audit.act(ALICE, "topic.create", TOPIC, "orders"):
        sent.access.require(ALICE, Operation.CREATE, TOPIC, "orders")
    sent.audit.flush()
    (event,) = sent.events
    assert (event.action, event.outcome, event.details["needs"]) == (
        "topic.create",
        AuditOutcome.REFUSED,
        "Create Topic orders",
    )


async def test_a_refusal_that_an_act_outlives_has_an_event_of_its_own(sent: SentEvents) -> None:
    with sent.audit.act(ALICE, "group.delete_offsets", ResourceType.GROUP, "g"):
        sent.refuse("secret")
    sent.audit.flush()
    assert sorted(sent.outcomes()) == [
        ("access", "refused", "NOT_AUTHORIZED"),
        ("group.delete_offsets", "done", ""),
    ]


async def test_a_task_that_an_act_began_reports_for_itself(sent: SentEvents) -> None:
    begun = asyncio.Event()

    async def later() -> None:
        await begun.wait()
        sent.refuse()

    with sent.audit.act(ALICE, "queue.redrive", ResourceType.GROUP, "jobs"):
        task = asyncio.create_task(later())
    begun.set()
    await task
    sent.audit.flush()
    assert [each.action for each in sent.events] == ["queue.redrive", "access"]


def test_an_act_inside_of_an_act_is_named_by_it(sent: SentEvents) -> None:
    with (
        sent.audit.act(ALICE, "queue.create", ResourceType.GROUP, "jobs"),
        sent.audit.act(ALICE, "topic.create", TOPIC, "jobs"),
    ):
        pass
    (event,) = sent.events
    assert (event.action, event.details["includes"]) == ("queue.create", ("topic.create jobs",))


def test_an_act_whose_items_all_failed_has_failed(sent: SentEvents) -> None:
    for outcomes, expected in (
        ({"a": TopicExists("a"), "b": TopicExists("b")}, ("failed", "TOPIC_EXISTS")),
        ({"a": TopicExists("a"), "b": None}, ("done", "")),
    ):
        with sent.audit.act(ALICE, "user.alter", ResourceType.USER, "") as act:
            act.items(outcomes.items())
        event = sent.events.pop()
        assert (event.outcome.value, event.error) == expected
        assert event.details["failed"][0] == "a: TOPIC_EXISTS"  # type: ignore[index]


async def test_equal_refusals_are_one_event_with_a_count(sent: SentEvents) -> None:
    for _ in range(3):
        sent.refuse()
    sent.refuse("other")
    assert sent.events == []
    while not sent.events:
        await asyncio.sleep(0.01)
    assert [(each.resource, each.count) for each in sent.events] == [("orders", 3), ("other", 1)]


async def test_refusals_of_one_source_are_limited_and_summed_up(sent: SentEvents) -> None:
    for index in range(PER_SOURCE + 30):
        sent.refuse(f"topic-{index}")
    sent.refuse("topic", Principal("bob", host="10.0.0.8", listener="kafka"))
    sent.audit.flush()
    assert len(sent.events) == PER_SOURCE + 1
    sent.events.clear()

    sent.clock.advance(60)
    sent.refuse("orders")
    sent.audit.flush()

    summary, next_one = sent.events
    assert summary.action == "audit.summary"
    assert summary.details["left_out"] == 30
    assert (summary.details["most_principal"], summary.details["most_address"]) == ("User:alice", "10.0.0.7")
    assert next_one.resource == "orders"


async def test_a_flood_of_sources_is_limited_in_all(sent: SentEvents) -> None:
    for index in range(3 * TOTAL):
        error = NotAuthenticated("no")
        sent.audit.login_refused("kafka", f"10.{index >> 16}.{index >> 8 & 255}.{index & 255}", error)
    assert len(sent.events) == TOTAL
    assert sent.audit._limiter.remembered <= 2 * TOTAL + 1
    sent.audit.close()
    assert sent.events[-1].details["left_out"] == 2 * TOTAL


async def test_names_that_a_client_makes_up_give_it_no_more_events(sent: SentEvents) -> None:
    for index in range(100):
        sent.audit.login_refused("http", "10.0.0.7", NotAuthenticated("no"), claims=f"user-{index}")
    assert len(sent.events) == PER_SOURCE
    sent.audit.close()


async def test_completed_acts_are_never_left_out(sent: SentEvents) -> None:
    for index in range(2 * TOTAL):
        with sent.audit.act(ALICE, "topic.create", TOPIC, f"topic-{index}"):
            pass
    assert len(sent.events) == 2 * TOTAL


async def test_failed_acts_are_limited(sent: SentEvents) -> None:
    for _ in range(PER_SOURCE + 5):
        fail_in(sent, TopicExists("it exists"))
    assert len(sent.events) == PER_SOURCE
    sent.audit.close()


async def test_the_summary_comes_after_a_minute_by_itself(
    sent: SentEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparrow.broker.audit.audit.WINDOW_S", 0.01)
    for index in range(PER_SOURCE + 5):
        sent.refuse(f"topic-{index}")
    sent.audit.flush()
    while sent.events[-1].action != "audit.summary":
        await asyncio.sleep(0.01)
    assert sent.events[-1].details["left_out"] == 5


def test_a_window_ends_after_a_minute() -> None:
    clock = ManualClock()
    limiter = EventLimiter(clock, per_source=1, total=2)
    one, two, three = (AuditSource("access", name, "", "") for name in "abc")
    assert [limiter.admit(each) for each in (one, one, two, three)] == [True, False, True, False]
    clock.advance(59.9)
    assert not limiter.admit(one)
    clock.advance(0.1)
    assert limiter.admit(one)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", "orders"),
        ("a\nb", "a\\nb"),
        ("\x1b[2J", "\\x1b[2J"),
        ("x" * 1000, "x" * (MAX_TEXT - 1) + "…"),
    ],
)
def test_texts_of_clients_forge_no_lines(text: str, expected: str) -> None:
    assert safe(text) == expected


def test_long_lists_are_cut() -> None:
    assert names([str(n) for n in range(MAX_ITEMS + 3)])[-1] == "and 3 more"


def test_events_are_logged_with_their_fields(sent: SentEvents, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO, "sparrow.audit"),
        sent.audit.act(ALICE, "topic.delete", TOPIC, "orders"),
    ):
        pass
    (record,) = caplog.records
    assert (record.name, record.getMessage()) == ("sparrow.audit", "topic.delete done")
    assert (
        vars(record).items()
        >= {
            "principal": "User:alice",
            "address": "10.0.0.7",
            "listener": "native",
            "resource": "orders",
        }.items()
    )
