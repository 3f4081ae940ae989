"""Chains, groups, chords and other graphs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import sparrow
from sparrow.base.errors import InvalidArgument
from sparrow.tasks import ArgumentsMisfit, TaskError, TaskFailed, chain, chord, group
from sparrow.tasks.in_process import TestRun
from tests.tasks import sample
from tests.tasks.sample import app

pytestmark = pytest.mark.slow


@pytest.fixture
async def run() -> AsyncIterator[TestRun]:
    async with app.testing(reserve_bytes=0) as running:
        yield running


async def test_each_step_gets_the_results_of_the_steps_before_it(run: TestRun) -> None:
    chained = await chain(sample.add.s(1, 2), sample.add.s(3), sample.add.s()).send()
    grouped = await group(sample.add.s(n, n) for n in range(3)).send()
    fanned = await chord([sample.add.s(n, 1) for n in range(100)], sample.total.s()).send()
    nested = await chain(
        sample.add.s(1, 1),
        group(sample.add.s(10), chain(sample.add.s(20), sample.add.s(100))),
        sample.total.s(),
    ).send()
    start = sample.one.s()
    left, right = sample.add.s(5).after(start), sample.add.s(6).after(start)
    diamond = await sample.total.s().after(left, right, start).send()
    await run.drain(timeout=60)
    assert await chained.get(30) == 16
    assert await grouped.get(30) == [0, 2, 4]
    assert await fanned.get(30) == sum(n + 1 for n in range(100))
    assert await nested.get(30) == 12 + 122
    assert await diamond.get(30) == 6 + 7 + 1


async def test_a_failed_step_fails_those_after_it_with_its_reason_or_is_ignored(run: TestRun) -> None:
    failed = await chain(sample.fail.s("broken"), sample.add.s(1), sample.add.s(2)).send()
    ignored = await chord(
        [sample.fail.s("broken"), sample.add.s(1, 1)],
        sample.total.s().options(on_parent_failure="ignore"),
    ).send()
    await run.drain(timeout=60)
    with pytest.raises(TaskFailed) as caught:
        await failed.get(30)
    assert "the step before it, 'fail'" in str(caught.value)
    assert "ValueError: broken" in str(caught.value)
    assert await ignored.get(30) == 2
    letters = await run.dead_letters(app.flows)
    assert len(letters) == 4  # the two that failed, and two steps after the first
    assert sum("the step before it" in letter.error for letter in letters) == 2


async def test_a_step_without_the_results_before_it(run: TestRun) -> None:
    result = await chain(sample.add.s(1, 2), sample.one.s(), sample.add.s(4, 5).alone()).send()
    await run.drain(timeout=60)
    assert await result.get(30) == 9


async def test_compositions_that_cannot_work_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="a chain needs a step"):
        chain()
    with pytest.raises(InvalidArgument, match="a group needs a step"):
        group([])
    other = sparrow.Tasks("other")

    @other.task
    def foreign() -> None: ...

    with pytest.raises(TaskError, match="tasks of the apps"):
        await chain(sample.one.s(), foreign.s()).send()
    with pytest.raises(ArgumentsMisfit, match="second"):
        await chain(sample.one.s(), sample.add.s("x")).send()
