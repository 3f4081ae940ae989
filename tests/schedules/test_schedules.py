"""Schedules of a broker with a manual clock: jobs, policies, crashes, and a clock that jumps."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sparrow.base.errors import (
    InvalidArgument,
    InvalidConfig,
    NotAuthorized,
    StorageFailed,
    UnknownQueue,
    UnknownSchedule,
)
from sparrow.broker.access.acls import AclBinding, AclFilter, PatternType, Permission
from sparrow.broker.access.authz import SYSTEM, Operation, Principal, ResourceType
from sparrow.broker.schedules import persistence
from sparrow.records.wellknown import PRIORITY, SCHEDULE_NAME
from tests.queues.work import ack, take
from tests.schedules.timed import NOON_MS, Timed

HOUR_S = 3600


async def test_each_tick_is_one_job_of_the_queue(timed: Timed) -> None:
    made = await timed.put(
        "report",
        cron="*/5 * * * *",
        value={"kind": "daily"},
        key="k",
        headers={"a": "b"},
        priority=7,
        ttl="1h",
    )
    assert [(each - NOON_MS) // 60_000 for each in made.next_ms] == [5, 10, 15, 20, 25]
    await timed.pass_minutes(11)
    assert await timed.minutes() == [5, 10]
    job = (await timed.published())[0]
    headers = dict(job.headers)
    assert json.loads(job.value or b"") == {"kind": "daily"}
    assert (job.key, headers["a"], headers[SCHEDULE_NAME], headers[PRIORITY]) == (b"k", b"b", b"report", b"7")
    consumer = await timed.consumer("jobs")
    assert len(await take(consumer)) == 2
    shown = timed.shown("report").statistics
    assert (shown.jobs, shown.last_ms, shown.last_offset) == (2, NOON_MS + 600_000, 1)


async def test_a_restart_and_a_crash_repeat_no_tick_and_lose_none(timed: Timed) -> None:
    await timed.put("often", every="1m")
    await timed.pass_minutes(2)
    await timed.restart()
    await timed.pass_minutes(2)
    await timed.crash()
    await timed.tick()
    await timed.pass_minutes(1)
    assert await timed.minutes() == [1, 2, 3, 4, 5]
    assert timed.shown("often").statistics.last_offset == 4


@pytest.mark.parametrize("appended", [True, False])
async def test_a_crash_between_plan_and_states_is_finished_by_the_next_start(
    timed: Timed, appended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        await timed.put(name, every="1m")
    await timed.pass_minutes(1)
    meta = timed.broker.parts._meta
    real = meta.write

    async def write(writes: list[object]) -> None:
        if any(getattr(each, "kind", "") == persistence.STATE_KIND for each in writes):
            raise StorageFailed("the power failed")
        await real(writes)

    monkeypatch.setattr(meta, "write", write)
    copies: list[str] = []
    if not appended:
        partition = timed.broker.parts.topic_registry.get("jobs").partitions[0]

        def refuse(*_: object, **__: object) -> None:
            copies.append(timed.copied())
            raise StorageFailed("the power failed")

        monkeypatch.setattr(partition, "publish", refuse)
    await timed.pass_minutes(1)
    copies.append(timed.copied())
    monkeypatch.undo()
    await timed.stop()
    timed.path = copies[0]
    await timed.start()
    await timed.tick()
    assert await timed.minutes() == [1, 1, 1, 2, 2, 2]
    assert await timed.broker.parts._meta.scan(persistence.PLAN_KIND) == []
    await timed.pass_minutes(1)
    assert await timed.minutes() == [1, 1, 1, 2, 2, 2, 3, 3, 3]


async def test_a_disk_that_refuses_for_a_while_costs_no_tick(
    timed: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    await timed.put("often", every="1m")
    meta = timed.broker.parts._meta

    async def refuse(_: object) -> None:
        raise StorageFailed("the disk is full")

    monkeypatch.setattr(meta, "write", refuse)
    await timed.pass_minutes(1)
    assert timed.shown("often").statistics.last_error == "the disk is full"
    assert await timed.minutes() == []
    monkeypatch.undo()
    timed.clock.advance(2)
    await timed.tick()
    assert await timed.minutes() == [1]


@pytest.mark.parametrize(
    ("misfire", "expected"), [("skip", [60]), ("run_once", [60]), ("run_all", [20, 40, 60])]
)
async def test_ticks_that_were_missed_are_handled_as_the_policy_says(
    timed: Timed, misfire: str, expected: list[int]
) -> None:
    await timed.put("often", every="20m", misfire=misfire)
    await timed.stop()
    timed.clock.advance(HOUR_S + 10)
    await timed.start()
    await timed.tick()
    assert await timed.minutes() == expected
    assert timed.shown("often").statistics.misfires > 0


async def test_the_latest_missed_tick_is_too_old_for_skip(timed: Timed) -> None:
    await timed.put("skipping", every="20m", misfire="skip")
    await timed.put("once", every="20m")
    await timed.stop()
    timed.clock.advance(HOUR_S + 300)
    await timed.start()
    await timed.tick()
    assert [dict(each.headers)[SCHEDULE_NAME] for each in await timed.published()] == [b"once"]
    assert timed.shown("skipping").next_ms[0] == NOON_MS + 80 * 60_000


@pytest.mark.parametrize(
    ("overlap", "after"), [("skip", [1, 4]), ("run_once", [1, 3]), ("run_all", [1, 2, 3])]
)
async def test_a_tick_that_comes_while_the_last_job_is_unfinished_is_handled_as_the_policy_says(
    timed: Timed, overlap: str, after: list[int]
) -> None:
    await timed.put("often", every="1m", overlap=overlap)
    consumer = await timed.consumer("jobs", "worker")
    await timed.pass_minutes(1)
    taken = await take(consumer)
    await timed.pass_minutes(2)
    assert await timed.minutes() == ([1, 2, 3] if overlap == "run_all" else [1])
    shown = timed.shown("often").statistics
    assert (shown.skipped, shown.is_waiting) == {
        "skip": (2, False), "run_once": (1, True), "run_all": (0, False)
    }[overlap]  # fmt: skip
    if overlap == "run_once":
        await timed.restart()  # what waits is kept
        consumer = await timed.consumer("jobs", "worker")
    await ack(consumer, taken[:1])
    timed.clock.advance(1)
    await timed.tick()
    if overlap == "skip":
        await timed.pass_minutes(1)
    assert (await timed.minutes())[: len(after)] == after


async def test_a_clock_that_jumps_loses_and_repeats_nothing(timed: Timed) -> None:
    await timed.put("often", every="20m")
    await timed.pass_minutes(20)
    timed.clock.advance(10 * HOUR_S)  # forward: as if the broker had been down
    await timed.tick()
    assert await timed.minutes() == [20, 620]
    timed.clock._wall_ms -= 30 * 60_000
    await timed.tick()
    await timed.pass_minutes(31)
    assert await timed.minutes() == [20, 620]
    await timed.pass_minutes(20)
    assert await timed.minutes() == [20, 620, 640]
    timed.clock._wall_ms = NOON_MS + 5 * 60_000
    await timed.tick()
    await timed.pass_minutes(16)
    assert (await timed.minutes())[3:] == [20]


async def test_schedules_follow_a_clock_that_was_set_back_while_the_broker_was_down(timed: Timed) -> None:
    await timed.put("often", every="20m")
    timed.clock.advance(1000 * 24 * HOUR_S)
    await timed.tick()
    await timed.stop()
    timed.clock._wall_ms = NOON_MS
    await timed.start()
    await timed.pass_minutes(21)
    assert (await timed.minutes())[1:] == [20]


async def test_a_pause_is_not_made_up_for(timed: Timed) -> None:
    await timed.put("often", every="10m", misfire="run_all")
    assert (await timed.broker.schedules.pause("often")).next_ms == []
    await timed.restart()
    await timed.pass_minutes(60)
    assert timed.shown("often").state == "paused"
    assert await timed.minutes() == []
    await timed.broker.schedules.resume("often")
    await timed.pass_minutes(10)
    assert await timed.minutes() == [70]


async def test_a_schedule_of_a_deleted_queue_says_so(timed: Timed) -> None:
    await timed.put("orphan", every="1m")
    await timed.broker.queues.delete("jobs")
    await timed.pass_minutes(2)
    shown = timed.shown("orphan")
    assert shown.state == "broken"
    assert shown.problem.startswith("queue 'jobs' is missing: it was deleted.")
    assert shown.statistics.last_error == shown.problem
    assert shown.statistics.failed == 2
    with pytest.raises(UnknownQueue):
        await timed.broker.schedules.run("orphan")
    await timed.broker.queues.create("jobs")
    await timed.pass_minutes(1)
    assert timed.shown("orphan").state == "active"
    assert await timed.minutes() == [3]
    await timed.broker.queues.delete("jobs")
    await timed.broker.schedules.delete("orphan")
    with pytest.raises(UnknownSchedule, match="sparrow schedule list"):
        timed.shown("orphan")


async def test_a_job_is_published_by_hand_and_a_change_counts_from_now(timed: Timed) -> None:
    await timed.put("daily", cron="@daily", value="old")
    job = await timed.broker.schedules.run("daily")
    assert (job.topic, job.partition, job.offset) == ("jobs", 0, 0)
    before = timed.shown("daily")
    assert (await timed.put("daily", cron="@daily", value="new")).next_ms == before.next_ms
    assert (await timed.put("daily", cron="@hourly", value="new")).next_ms[0] == NOON_MS + HOUR_S * 1000
    await timed.broker.schedules.run("daily")
    assert [each.value for each in await timed.published()] == [b"old", b"new"]
    assert [each.name for each in await timed.broker.schedules.listing("d*", queue="jobs")] == ["daily"]
    assert await timed.broker.schedules.listing(queue="other") == []


async def test_queues_topics_and_names_that_do_not_fit_are_refused(timed: Timed) -> None:
    with pytest.raises(UnknownQueue):
        await timed.broker.schedules.put("x", {"queue": "none", "every": "1m"})
    with pytest.raises(InvalidArgument, match="without '/'"):
        await timed.put("a/b", every="1m")
    await timed.create("two", ["first", "second"])
    with pytest.raises(InvalidConfig, match="several topics; name one of them as topic: first, second"):
        await timed.broker.schedules.put("x", {"queue": "two", "every": "1m"})
    with pytest.raises(InvalidConfig, match="does not take from topic 'jobs'"):
        await timed.broker.schedules.put("x", {"queue": "two", "topic": "jobs", "every": "1m"})
    await timed.broker.topics.create("compacted", config={"cleanup.policy": "compact"})
    await timed.create("states", ["compacted"])
    with pytest.raises(InvalidConfig, match="needs a key"):
        await timed.broker.schedules.put("x", {"queue": "states", "every": "1m"})
    await timed.broker.schedules.put("x", {"queue": "two", "topic": "second", "every": "1m"})
    await timed.pass_minutes(1)
    assert await timed.minutes("second") == [1]


async def test_a_job_that_its_topic_never_takes_does_not_stop_the_others(timed: Timed) -> None:
    await timed.put("large", every="1m", value="x" * 5000)
    await timed.put("small", every="1m")
    await timed.broker.topics.configure("jobs", {"max.message.bytes": "1000"})
    await timed.pass_minutes(2)
    assert await timed.minutes() == [1, 2]
    assert "max.message.bytes" in timed.shown("large").statistics.last_error
    assert timed.shown("large").statistics.failed == 2


def rule(operation: Operation, kind: ResourceType, name: str) -> AclBinding:
    return AclBinding(kind, name, PatternType.LITERAL, "User:ann", "*", operation, Permission.ALLOW)


async def test_jobs_are_published_with_the_rights_of_the_owner(timed: Timed) -> None:
    timed.config = replace(timed.config, allow_unnamed_resources=False, super_users=frozenset({"User:root"}))
    await timed.restart()
    ann, broker = Principal("ann"), timed.broker
    settings = {"queue": "jobs", "every": "1m"}
    with pytest.raises(NotAuthorized):
        await broker.schedules.put("mine", settings, principal=ann)
    await broker.acls.create([rule(Operation.ALTER_CONFIGS, ResourceType.GROUP, "jobs")], principal=SYSTEM)
    with pytest.raises(NotAuthorized, match="Write"):
        await broker.schedules.put("mine", settings, principal=ann)
    await broker.acls.create([rule(Operation.WRITE, ResourceType.TOPIC, "jobs")], principal=SYSTEM)
    await broker.schedules.put("mine", settings, principal=ann)
    await timed.pass_minutes(1)
    await broker.acls.delete([AclFilter(resource_type=ResourceType.TOPIC)], principal=SYSTEM)
    await timed.pass_minutes(1)
    shown = broker.schedules.describe("mine", principal=SYSTEM)
    assert (shown.state, shown.owner) == ("broken", "User:ann")
    assert "User:ann, who owns the schedule, may not write" in shown.problem
    await broker.schedules.owner_deleted("ann")
    shown = broker.schedules.describe("mine", principal=SYSTEM)
    assert shown.paused_because == "its owner 'ann' was deleted"
    assert (await broker.schedules.listing(principal=Principal("bob"))) == []


async def test_many_schedules_that_are_due_together_are_each_one_job(timed: Timed) -> None:
    await timed.broker.topics.add_partitions("jobs", 4)
    for number in range(300):
        await timed.put(f"s{number}", every="1m", value="v" * 100)
    await timed.pass_minutes(1)
    found = await timed.published()
    assert len({dict(each.headers)[SCHEDULE_NAME] for each in found}) == len(found) == 300
