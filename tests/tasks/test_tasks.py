"""Tasks in one process: sending, running, failing, results."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import sparrow
from sparrow.base.errors import InvalidArgument, NotLeased
from sparrow.tasks import ArgumentsMisfit, TaskError, TaskFailed, TaskJob, UnencodableResult, chain
from sparrow.tasks.in_process import TestRun
from sparrow.tasks.jobs import LocalJob
from sparrow.tasks.results import JobOutcome, ensure_topic
from sparrow.tasks.runtime import Runtime
from sparrow.tasks.wire import IdSource, created_ms, header_of
from tests.tasks import sample
from tests.tasks.sample import REQUEST, Address, Customer, Item, app

pytestmark = pytest.mark.slow


@pytest.fixture
async def run() -> AsyncIterator[TestRun]:
    async with app.testing(reserve_bytes=0) as running:
        yield running


async def reason_of(run: TestRun, queue: str = "sample") -> str:
    """Return the error of the only dead letter of a queue."""
    (letter,) = await run.dead_letters(queue)
    return letter.error


async def test_arguments_of_every_kind_arrive_with_their_types_and_the_result_comes_back(
    run: TestRun,
) -> None:
    result = await sample.describe.send(
        Address("Elm", 7), [Item("pen")], customer=Customer(name="Ann", age=30)
    )
    await run.drain()
    assert await result.get(30) == {"street": "Elm", "items": 1, "age": 30, "attempt": 1}
    assert (await result.progress()).state == "done"
    # another process knows only the ID
    other = sparrow.Tasks("sample", url=app.url)
    assert await other.result(result.id).get(30) == await result.get()
    await other.close()


@pytest.mark.parametrize(
    ("args", "named", "words"),
    [
        ((), {}, "'first' is missing"),
        (("x",), {}, "Expected `int`, got `str` - at `$.first`"),
        ((1, 2, 3), {}, "3 are given by position, it takes 2"),
        ((1,), {"first": 2}, "'first' is given twice"),
        ((1,), {"third": 2}, "it has no parameter 'third'"),
        (({1},), {}, "Expected `int`"),
        ((object(),), {}, "cannot be written as JSON"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_where_they_are_sent(
    args: tuple[Any, ...], named: dict[str, Any], words: str
) -> None:
    with pytest.raises(ArgumentsMisfit) as caught:
        sample.add.message(*args, **named)
    assert words in str(caught.value)
    assert "the task 'add'" in str(caught.value)


async def test_a_payload_of_another_version_is_a_dead_letter_with_the_reason_at_once(run: TestRun) -> None:
    await run.client.publish("sample", b'{"first": 1, "colour": "red"}', headers={"task": b"add"})
    assert await run.drain() == 0
    assert "Object contains unknown field `colour`" in await reason_of(run)
    assert run.failed == 1


async def test_a_task_that_no_worker_knows_and_a_message_that_names_none(run: TestRun) -> None:
    await sample.one.send()
    await run.client.publish("sample", b"{}", headers={"task": b"renamed"})
    await run.client.publish("sample", b"{}")
    assert await run.drain() == 1
    errors = sorted(letter.error for letter in await run.dead_letters("sample"))
    assert "the app 'sample' has no task 'renamed', it has 'add', 'append'" in errors[0]
    assert "names no task: it has no header 'task'" in errors[1]


async def test_a_result_that_json_cannot_carry_fails_the_job_with_a_clear_reason(run: TestRun) -> None:
    result = await sample.unencodable.send()
    await run.drain()
    assert "it returned set, and object cannot be written as JSON" in await reason_of(run)
    with pytest.raises(TaskFailed, match="it returned set"):
        await result.get(30)


async def test_retries_then_a_dead_letter_with_log_lines(
    run: TestRun, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.INFO, "sparrow.worker")
    failing = await sample.fail.send("no such customer")
    once = await sample.fail_once.send(str(tmp_path / "file"))
    await run.drain()
    with pytest.raises(TaskFailed, match="ValueError: no such customer"):
        await failing.get(30)
    assert await once.get(30) == 2
    (letter,) = await run.dead_letters()
    assert letter.delivery_count == 3
    lines = [record.getMessage() for record in caplog.records]
    assert any("attempt 1 of 3, next at once" in line and "task='fail'" in line for line in lines)
    assert any("attempt 3 of 3, gave up: dead letter in 'sample.dead'" in line for line in lines)


async def test_delays_grow_between_attempts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sparrow.worker")
    async with app.testing(delays=True, reserve_bytes=0) as run:
        result = await sample.fail.send("later")
        working = asyncio.create_task(app.run_worker(handle_signals=False))
        with pytest.raises(TaskFailed):
            await result.get(60)
        working.cancel()
        await asyncio.wait([working])
        assert run.sent[0].task == "fail"
    waits = [record.sparrow["delay_s"] for record in caplog.records if "next in" in record.getMessage()]  # type: ignore[attr-defined]
    assert len(waits) == 2
    assert waits[0] < waits[1] < 0.03


async def test_a_task_that_takes_too_long_is_cancelled_or_given_back(run: TestRun) -> None:
    results = [await sample.slow.send(), await sample.slow_thread.send()]
    await run.drain()
    for result in results:
        with pytest.raises(TaskFailed, match="TimeLimitExceeded: the task did not end within its timeout"):
            await result.get(30)


async def test_an_async_task_is_cancelled_at_its_hard_limit_and_the_worker_goes_on(run: TestRun) -> None:
    late, kept = await sample.too_long.send(), await sample.cleaning.send(7)
    await run.drain()
    with pytest.raises(TaskFailed, match=r"did not end within its hard_timeout of 0.2 s"):
        await late.get(30)
    assert await kept.get(30) == 7
    after = await sample.one.send()
    await run.drain()
    assert await after.get(30) == 1


async def test_tasks_in_processes_run_there_and_are_interrupted_killed_and_replaced(run: TestRun) -> None:
    results = [await task.send() for task in (sample.slow_process, sample.stubborn, sample.crash)]
    where = await sample.process_id.send()
    await run.drain(timeout=100)
    assert await where.get(30) != os.getpid()
    for result, words in zip(
        results,
        (
            "did not end within its timeout of 0.3 s",
            "did not end within its hard_timeout of 0.5 s; its process was killed",
            "ProcessDied: the process of the task ended by signal SIGSEGV",
        ),
        strict=True,
    ):
        with pytest.raises(TaskFailed) as caught:
            await result.get(30)
        assert words in str(caught.value)
    # the crash was tried twice
    assert {letter.delivery_count for letter in await run.dead_letters("processes")} == {1, 2}


@pytest.mark.parametrize(
    "task", [sample.request_of_sender, sample.request_in_thread, sample.request_in_process]
)
async def test_context_variables_travel_with_the_job_and_do_not_reach_the_next_one(
    task: Any, run: TestRun
) -> None:
    token = REQUEST.set("request 7")
    first = await task.send("changed")
    REQUEST.reset(token)
    others = [await task.send("changed") for _ in range(20)]
    await run.drain(concurrency=1)
    assert await first.get(30) == "request 7"
    assert {await each.get(30) for each in others} == {"none"}


async def test_middleware_hooks_and_the_parts_of_a_message() -> None:
    local = sparrow.Tasks("hooks")
    seen: list[str] = []

    @local.task(results=True, priority=7, ttl="1h", name="hello")
    async def greet(name: str) -> str:
        seen.append("task")
        return f"hello {name}"

    @local.middleware
    async def outer(job: TaskJob, call_next: Any) -> Any:
        seen.append(f"outer {job.task}")
        try:
            return await call_next(job)
        finally:
            seen.append("outer ends")

    @local.middleware
    async def inner(job: TaskJob, call_next: Any) -> Any:
        return (await call_next(job)).upper()

    @local.before_send
    def sign(message: Any) -> None:
        message.headers.append(("signed", b"yes"))

    @local.on_start
    async def begin() -> None:
        seen.append("start")

    @local.on_stop
    def end() -> None:
        seen.append("stop")

    async with local.testing(reserve_bytes=0) as run:
        result = await greet.options(key="ann", delay="10m").send("Ann")
        await run.drain()
        assert await result.get(30) == "HELLO ANN"
    assert seen == ["start", "outer hello", "task", "outer ends", "stop"]
    (message,) = run.sent
    assert (message.task, message.queue, message.value, message.key) == (
        "hello",
        "hooks",
        b'{"name":"Ann"}',
        b"ann",
    )
    assert header_of(message.headers, "signed") == b"yes"
    assert message.schedule["priority"] == 7


async def test_options_of_a_send_reach_the_queue() -> None:
    async with app.testing(delays=True, reserve_bytes=0) as run:
        await sample.one.send(delay="10m", priority=9, key="k", ttl="1h")  # type: ignore[call-arg]
        await sample.one.options(at=datetime.now(UTC) + timedelta(hours=2)).send()
        assert await run.drain() == 0
        records = await run.client.admin.peek_queue("sample", states=["delayed"])
        assert [record.key for record in records if record.priority == 9] == [b"k"]
        assert len(records) == 2
    with pytest.raises(InvalidArgument, match="delay is 'soon'"):
        sample.one.options(delay="soon").message()
    with pytest.raises(TaskError, match="there is no option 'colour'"):
        sample.one.options(colour="red")  # type: ignore[call-arg]


async def test_many_jobs_at_once(run: TestRun) -> None:
    results = await sample.add.send_many([(n, 1) for n in range(2000)])
    assert len({result.id for result in results}) == 2000
    assert await run.drain(concurrency=50) == 2000
    assert [await result.get(30) for result in results[::400]] == [1, 401, 801, 1201, 1601]


async def test_progress_is_seen_and_a_task_without_results_says_so(run: TestRun) -> None:
    result = await sample.report.send()
    assert (await result.progress()).state == "waiting"
    await run.drain()
    assert await result.get(30) == 1
    with pytest.raises(TaskError, match="keeps no results; declare it with results=True"):
        await (await sample.append.send("/dev/null", "x")).get(1)


@pytest.mark.parametrize("task", [sample.read, sample.read_in_thread, sample.read_in_process])
async def test_fraction_and_text_of_progress_are_seen_while_the_task_runs(
    task: Any, run: TestRun, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    result = await task.send(str(pipe))
    with pipe.open("r+b", buffering=0) as end:
        draining = asyncio.create_task(run.drain(timeout=60))
        async with asyncio.timeout(60):
            while (found := await result.progress()).state == "waiting":
                await asyncio.sleep(0.02)
        assert (found.state, found.fraction, found.text, found.attempt) == ("running", 0.4, "reading", 1)
        end.write(b"the end\n")
        assert await result.get(30) == "the end\n"
        await draining
    found = await result.progress()
    assert (found.state, found.fraction) == ("done", 1.0)


async def test_a_task_sees_its_own_result_as_its_sender_does(run: TestRun) -> None:
    result = await sample.look_at_own_result.send()
    await run.drain()
    assert await result.get(30) == [result.id, "a quarter"]


async def test_progress_that_comes_while_a_reader_begins_is_seen(
    run: TestRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = await app.connection()
    result = await sample.report.send()
    offsets = connection.client.admin.offsets
    is_published = False

    async def publishing(topic: str, start: Any) -> Any:
        nonlocal is_published
        found = await offsets(topic, start)
        if not is_published:
            is_published = True
            await (await connection.publish_outcome(result.id, JobOutcome("running", fraction=0.4)))
        return found

    monkeypatch.setattr(connection.client.admin, "offsets", publishing)
    found = await result.progress()
    assert (found.state, found.fraction) == ("running", 0.4)


async def test_a_rate_limits_all_workers_together() -> None:
    local = sparrow.Tasks("rates")
    starts: list[float] = []

    @local.task(rate="20/s", queue="limited")
    async def tick(number: int) -> None:
        starts.append(time.monotonic())

    with pytest.raises(
        InvalidArgument, match="the task 'tick' has a rate, which is one of its queue 'limited'"
    ):

        @local.task(queue="limited")
        async def beside() -> None: ...

    async with local.testing(reserve_bytes=0) as run:
        await tick.send_many([(number,) for number in range(30)])
        working = [asyncio.create_task(local.run_worker(handle_signals=False)) for _ in range(2)]
        await run.drain(timeout=60)
        for each in working:
            each.cancel()
        await asyncio.wait(working)
    assert len(starts) == 30
    # a burst of 2, then 20 a second: the broker decides
    assert starts[-1] - starts[0] > 1.2


async def test_a_second_send_with_the_same_text_sends_nothing_and_returns_the_first_job(run: TestRun) -> None:
    first = await sample.add.options(unique="sum-1").send(1)
    again = [await sample.add.options(unique="sum-1").send(number) for number in (1, 2)]
    at_once = await asyncio.gather(*(sample.add.options(unique="sum-2").send(3) for _ in range(10)))
    other = await sample.one.options(unique="sum-1").send()  # of another task
    assert {first.id, *(each.id for each in again)} == {first.id}
    assert len({each.id for each in at_once}) == 1
    assert other.id != first.id
    assert await run.drain() == 3
    assert await again[1].get(30) == 11
    with pytest.raises(
        InvalidArgument, match=r"this broker remembers for at most 1d \(http.idempotency_window\)"
    ):
        await run.client.publish_once("sample", b"{}", once="x", window_s=86_401)
    with pytest.raises(InvalidArgument, match="unique is an option of one job"):
        await sample.add.send_many([(1,)], unique="x")


async def test_a_text_is_free_again_after_its_window(run: TestRun) -> None:
    async def offset() -> tuple[int, bool]:
        found = await run.client.publish_once(
            "sample", b"{}", once="short", window_s=0.3, headers={"task": b"one"}
        )
        return found.offset, found.is_repeat

    assert not (await offset())[1]
    deadline = time.monotonic() + 60
    while (await offset())[1]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_unique_for_of_a_task_is_how_long_a_text_is_remembered() -> None:
    local = sparrow.Tasks("briefly")

    @local.task(unique_for="1s")
    async def greet() -> None: ...

    async with local.testing(reserve_bytes=0) as run:
        began = time.monotonic()
        first = await greet.options(unique="ann").send()
        ids = [first.id]
        async with asyncio.timeout(60):
            while ids[-1] == first.id:
                ids.append((await greet.options(unique="ann").send()).id)
                await asyncio.sleep(0.02)
        assert time.monotonic() - began > 0.9
        assert await run.drain() == 2


async def test_a_schedule_of_the_broker_sends_the_jobs_of_a_task() -> None:
    local = sparrow.Tasks("clock")
    seen: list[int] = []

    @local.schedule(every="1s", arguments={"number": 7})
    @local.task
    async def tick(number: int) -> None:
        seen.append(number)

    with pytest.raises(TypeError, match=r"@app.schedule is written above @app.task"):
        local.schedule("@daily")(lambda: None)  # type: ignore[type-var]
    with pytest.raises(InvalidArgument, match=r"has two schedules 'clock.tick'"):
        local.schedule("@daily")(tick)
    async with local.testing(reserve_bytes=0) as run:
        working = asyncio.create_task(local.run_worker(handle_signals=False))
        deadline = time.monotonic() + 60
        while len(seen) < 2:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        working.cancel()
        await asyncio.wait([working])
        described = await run.client.admin.describe_schedule("clock.tick")
        assert described.name == "clock.tick"
    assert set(seen) == {7}


async def test_a_cron_line_with_its_time_zone_reaches_the_broker() -> None:
    local = sparrow.Tasks("mornings")

    @local.schedule("30 9 * * mon-fri", time_zone="Europe/Berlin", arguments={"number": 7})
    @local.task(priority=6)
    async def greet(number: int) -> None: ...

    async with local.testing(reserve_bytes=0) as run:
        await greet.send(1)
        await run.drain()
        found = await run.client.admin.describe_schedule("mornings.greet")
    assert (found.cron, found.time_zone, found.every_ms) == ("30 9 * * mon-fri", "Europe/Berlin", 0)
    assert (found.queue, found.value, found.priority) == ("mornings", '{"number":7}', 6)
    assert ("task", "greet") in found.headers
    times = [datetime.fromtimestamp(at_ms / 1000, ZoneInfo("Europe/Berlin")) for at_ms in found.next_ms]
    assert [(each.hour, each.minute) for each in times] == [(9, 30)] * 5
    assert all(each.weekday() < 5 for each in times)


async def test_a_topic_of_results_that_exists_is_not_created_again(
    run: TestRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ensure_topic(run.client, "again", 86_400_000)

    async def refused(*_: object, **__: object) -> None:
        raise AssertionError("the topic exists")

    monkeypatch.setattr(run.client.admin, "create_topic", refused)
    await ensure_topic(run.client, "again", 86_400_000)
    with pytest.raises(AssertionError, match="the topic exists"):
        await ensure_topic(run.client, "other", 86_400_000)


async def test_results_are_kept_in_a_compacted_topic_for_the_time_of_the_app() -> None:
    local = sparrow.Tasks("kept", results_ttl="2h")

    @local.task(results=True)
    async def greet() -> str:
        return "hello"

    async with local.testing(reserve_bytes=0) as run:
        result = await greet.send()
        await run.drain()
        assert await result.get(30) == "hello"
        config = {
            entry.name: entry.value
            for entry in (await run.client.admin.describe_topic(local.results_topic)).config
        }
    assert local.results_topic == "kept.results"
    assert set(config["cleanup.policy"].split(",")) == {"compact", "delete"}
    assert config["retention.ms"] == "7200000"
    assert config["message.timestamp.type"] == "LogAppendTime"  # a sender's clock decides nothing


async def test_a_plain_task_replies_and_settles_from_its_thread() -> None:
    local = sparrow.Tasks("asked")

    @local.task
    def double(number: int, *, job: sparrow.TaskJob) -> None:
        assert job.reply(b"%d" % (number * 2)).offset >= 0
        job.ack()
        with pytest.raises(NotLeased):
            job.nack()

    async with local.testing(reserve_bytes=0) as run:
        working = asyncio.create_task(local.run_worker(queues=["asked"], handle_signals=False))
        reply = await run.client.request("asked", b'{"number": 21}', 60.0, headers={"task": b"double"})
        assert reply.value == b"42"
        async with asyncio.timeout(60):
            while (await run.client.admin.describe_queue("asked")).statistics.unfinished:
                await asyncio.sleep(0.02)
        working.cancel()
        await asyncio.wait([working])
    with pytest.raises(TaskError, match="cannot reply: it runs in a process of its own"):
        LocalJob("apart", "1", report=lambda *_: None).reply(b"")
    await LocalJob("apart", "1").reply(b"")


@pytest.mark.parametrize("ahead_s", [-3600, 3600, 86_400])
async def test_a_sender_whose_clock_is_wrong_loses_no_result(
    ahead_s: int, run: TestRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await sample.one.send()).progress()  # from here on results are followed

    class WrongClock(IdSource):
        def next(self, now_ms: int | None = None) -> str:
            return super().next((now_ms or time.time_ns() // 1_000_000) + ahead_s * 1000)

    monkeypatch.setattr(app, "ids", WrongClock())
    chained = await chain(sample.add.s(1, 2), sample.add.s(3), sample.add.s(4)).send()
    await run.drain()
    other = sparrow.Tasks("sample", url=app.url)
    async with other:
        assert (await other.result(chained.id).progress()).state == "done"
    assert await chained.get(30) == 10


async def test_from_a_thread_without_a_loop() -> None:
    async with app.testing(reserve_bytes=0) as run:
        result = await asyncio.to_thread(sample.add.send_sync, 1, 2)
        await run.drain()
        assert await asyncio.to_thread(result.get, 30) == 3
        await asyncio.to_thread(app.close_sync)


async def test_in_place() -> None:
    assert sample.add.call(1) == 11
    assert await sample.total.call([1, None, 3]) == 4
    assert sample.add(1, 2) == 3
    with pytest.raises(ArgumentsMisfit):
        sample.add.call("one")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="wrong"):
        await sample.fail.call("wrong")


def test_declarations_that_cannot_work_are_refused() -> None:
    local = sparrow.Tasks("local")
    with pytest.raises(TypeError, match="arguments are sent by name"):

        @local.task
        def many(*args: int) -> None: ...

    with pytest.raises(TypeError, match="has a yield"):

        @local.task
        def steps() -> Any:
            yield 1

    with pytest.raises(InvalidArgument, match="retries of the task 'often' is 999"):

        @local.task(retries=999)
        def often() -> None: ...

    with pytest.raises(InvalidArgument, match="is async, and executor is 'process'"):

        @local.task(executor="process")
        async def both() -> None: ...

    with pytest.raises(
        InvalidArgument, match="hard_timeout of the task 'limits' is 1 s, less than its timeout of 2 s"
    ):

        @local.task(timeout="2s", hard_timeout="1s")
        def limits() -> None: ...

    @local.task(name="same")
    def first() -> None: ...

    with pytest.raises(TaskError, match="has no task for the queue 'nope'; its queues are"):
        Runtime(local, queues=["nope"])
    with pytest.raises(InvalidArgument, match="has two tasks 'same'"):

        @local.task(name="same")
        def second() -> None: ...


def test_ids_are_unique_sortable_and_have_the_time() -> None:
    source = IdSource()
    ids = [source.next(1_700_000_000_000) for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert {created_ms(each) for each in ids} == {1_700_000_000_000}
    assert created_ms("sample-0-17") == 0
    assert (ids[0][14], ids[0][19] in "89ab") == ("7", True)


def test_an_unencodable_result_in_place_is_a_task_error() -> None:
    assert issubclass(UnencodableResult, TaskError)
