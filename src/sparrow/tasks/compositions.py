"""Compositions: steps that run after other steps and get their results.

    await chain(fetch.s(url), parse.s(), store.s("pages")).send()
    await chord(group(resize.s(image, size) for size in sizes), publish.s()).send()

Any graph without cycles is one: `step.after(other, another)`. All steps of a composition are sent
at once, to a parented queue of the app (`APP.flows`): the broker delivers each when the steps
before it are finished. Results travel by the topic of results.

A failed step fails those after it, each with the reason; `on_parent_failure="ignore"` runs a step
nevertheless, with None in the place of the missing result.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sparrow.base.errors import InvalidArgument
from sparrow.tasks.errors import TaskError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from sparrow.tasks.interface import AnyTask
    from sparrow.tasks.options import Failure
    from sparrow.tasks.results import Result

R = TypeVar("R")


class Composition:
    """One or several steps that nothing comes after, and with them all steps before."""

    __slots__ = ("exits",)

    def __init__(self, exits: Sequence[Step[Any]]) -> None:
        self.exits = tuple(exits)

    def steps(self) -> list[Step[Any]]:
        """Return all steps, each behind those that it comes after."""
        ordered: dict[Step[Any], None] = {}
        pending: list[tuple[Step[Any], bool]] = [(each, False) for each in reversed(self.exits)]
        while pending:
            step, is_expanded = pending.pop()
            if step in ordered:
                continue
            if is_expanded:
                ordered[step] = None
                continue
            pending.append((step, True))
            pending += [(each, False) for each in reversed(step.parents) if each not in ordered]
        return list(ordered)

    async def send(self) -> GroupResult:
        """Send all steps; return the results of the last ones, when all are on stable storage.

        Raises:
            ArgumentsMisfit: the arguments of a step do not fit. SparrowError: as `Task.send`.
        """
        return GroupResult(await self._sent())

    async def _sent(self) -> list[Result[Any]]:
        steps = self.steps()
        if not steps:
            raise InvalidArgument("the composition has no steps")
        app = steps[0].task.app
        others = {step.task.app.name for step in steps if step.task.app is not app}
        if others:
            raise TaskError(
                f"the composition has tasks of the apps {app.name!r} and {min(others)!r}; the steps of one "
                "share a queue, so they are of one app"
            )
        return await app.send_steps(steps, self.exits)


class Step(Composition, Generic[R]):
    """A task with arguments, at a place in a composition. Immutable."""

    __slots__ = ("args", "delay_s", "failure", "fills", "fills_list", "kwargs", "parents", "priority", "task")

    def __init__(
        self,
        task: AnyTask,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        *,
        parents: tuple[Step[Any], ...] = (),
        failure: Failure = "fail",
        fills: bool = True,
        fills_list: bool = False,
        priority: int | None = None,
    ) -> None:
        super().__init__((self,))
        self.task = task
        self.args = tuple(args)
        self.kwargs = kwargs
        self.parents = parents
        self.failure = failure
        self.fills = fills
        self.fills_list = fills_list
        self.priority = priority

    def __repr__(self) -> str:
        after = f" after {len(self.parents)}" if self.parents else ""
        return f"<Step {self.task.name!r}{after}>"

    def after(self, *steps: Step[Any]) -> Step[R]:
        """Return this step, to run after others; with several it gets the list of their results."""
        return self._changed(
            parents=(*self.parents, *steps), fills_list=self.fills_list or len(self.parents) + len(steps) > 1
        )

    def alone(self) -> Step[R]:
        """Return this step without the results of the steps before it as an argument."""
        return self._changed(fills=False)

    def options(self, *, on_parent_failure: Failure | None = None, priority: int | None = None) -> Step[R]:
        """Return this step with options.

        Args:
            on_parent_failure: "fail": the step fails if one before it failed. "ignore": it runs,
                and gets None for the missing result.
            priority: 0 to 9, as for a send.
        """
        if on_parent_failure not in (None, "fail", "ignore"):
            raise InvalidArgument(
                f"on_parent_failure is {on_parent_failure!r}; it must be 'fail' or 'ignore'"
            )
        return self._changed(
            failure=self.failure if on_parent_failure is None else on_parent_failure,
            priority=self.priority if priority is None else priority,
        )

    def _changed(self, **changes: Any) -> Step[R]:
        fields = {
            "parents": self.parents,
            "failure": self.failure,
            "fills": self.fills,
            "fills_list": self.fills_list,
            "priority": self.priority,
        }
        return Step(self.task, self.args, self.kwargs, **(fields | changes))

    @property
    def fill(self) -> str | None:
        """The parameter that gets the results of the steps before this one."""
        names = self.task.signature.positional
        if not self.parents or not self.fills or not names or names[0] in self.kwargs:
            return None
        return names[0]

    async def send(self) -> Result[R]:  # type: ignore[override]  # one exit has one result
        """Send this step and all steps before it; return the result of this one."""
        return (await self._sent())[0]


class StepChain(Composition):
    """Steps one after the other."""

    __slots__ = ()

    async def send(self) -> Any:
        """Send all steps; return the result of the last one (of several: a `GroupResult`)."""
        results = await self._sent()
        return results[0] if len(results) == 1 else GroupResult(results)


def chain(*parts: Composition) -> StepChain:
    """Return steps, or compositions, that run one after the other.

    Raises:
        InvalidArgument: there are none.
    """
    if not parts:
        raise InvalidArgument("a chain needs a step")
    current = parts[0]
    for part in parts[1:]:
        current = Composition(_behind(part, current.exits, is_list=isinstance(current, StepGroup)))
    return StepChain(current.exits)


class StepGroup(Composition):
    """Steps side by side."""

    __slots__ = ()


def group(*parts: Composition | Iterable[Composition]) -> StepGroup:
    """Return steps, or compositions, that run side by side; an iterable of them is one, too."""
    exits: list[Step[Any]] = []
    for part in parts:
        for each in (part,) if isinstance(part, Composition) else part:
            exits += each.exits
    if not exits:
        raise InvalidArgument("a group needs a step")
    return StepGroup(exits)


def chord(header: Composition | Iterable[Composition], callback: Composition) -> StepChain:
    """Return a group, and a callback that runs after all of it, with the list of its results."""
    return chain(header if isinstance(header, StepGroup) else group(header), callback)


def _behind(part: Composition, parents: tuple[Step[Any], ...], *, is_list: bool) -> list[Step[Any]]:
    """Return the exits of a copy of a composition, whose first steps come after `parents`."""
    copies: dict[Step[Any], Step[Any]] = {}
    for step in part.steps():
        if step.parents:
            copies[step] = step._changed(parents=tuple(copies[each] for each in step.parents))  # noqa: SLF001
        else:
            copies[step] = step._changed(parents=parents, fills_list=is_list or len(parents) > 1)  # noqa: SLF001
    return [copies[each] for each in part.exits]


class GroupResult:
    """The results of several jobs."""

    def __init__(self, results: Sequence[Result[Any]]) -> None:
        self.results = list(results)

    async def get(self, timeout: float | None = None) -> list[Any]:
        """Wait for all results and return them, in order.

        Args:
            timeout: seconds for all of them; None: no limit.

        Raises:
            TaskFailed: the first job that failed. TimedOut
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        found = []
        for result in self.results:
            left_s = None if deadline is None else max(0.001, deadline - time.monotonic())
            found.append(await result.get(left_s))
            await asyncio.sleep(0)
        return found

    def __await__(self) -> Generator[Any, None, list[Any]]:
        return self.get().__await__()
