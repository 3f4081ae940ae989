"""Runs the flows of a pipeline: starts them in order, watches them, stops them.

Flows that run once follow each other when one reads what another writes; those that go on all start at the beginning. When one flow fails, the others
stop after their running batch, and flows that have not begun do not begin. The same happens when the caller asks for the end.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from sparrow.spark.pipelines.engine.building import Build
from sparrow.spark.pipelines.engine.graph import chosen, generations
from sparrow.spark.pipelines.engine.progress import SKIPPED, Progress
from sparrow.spark.pipelines.engine.queries import RunningFlow
from sparrow.spark.pipelines.engine.reporting import Reporter
from sparrow.spark.pipelines.engine.sources import broker_target
from sparrow.spark.pipelines.model import Every, Once
from sparrow.spark.quietly import quiet_loggers, quiet_settings
from sparrow.spark.session import active_session, session
from sparrow.spark.wire import connect

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pyspark.sql import SparkSession

    from sparrow.spark.pipelines.engine.failures import Failure
    from sparrow.spark.pipelines.model import Flow, Pipeline, Trigger

OnProgress = Callable[[Sequence[Progress]], None]
POLL_S: Final = 0.2
PROGRESS_S: Final = 0.5
BEGINNING_AT_ONCE: Final = max(2, os.cpu_count() or 2)
"""Queries. Each starts a process of Python, and Spark gives it 10 s to answer: of twenty at once on two cores, none would."""


class Stop(Protocol):
    """What says when to stop, such as a `threading.Event`."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait so long, or until it is time; whether it is."""
        ...


@dataclass(frozen=True)
class Outcome:
    """How a flow ended.

    Args:
        flow: its name.
        progress: the last that was known; its state is "done", "stopped", "failed" or "skipped" (not begun, because another failed or all stopped).
        failure: why it failed, None when it did not.
    """

    flow: str
    progress: Progress
    failure: Failure | None = None


def run(
    pipeline: Pipeline,
    *,
    spark: SparkSession | None = None,
    flows: Collection[str] = (),
    once: bool | None = None,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, object] | None = None,
    on_progress: OnProgress | None = None,
    stop: Stop | None = None,
    is_verbose: bool = False,
) -> list[Outcome]:
    """Run a pipeline until all its flows have ended.

    Args:
        spark: the session; None: the one of this process, or a new one of `master`, `remote` and `conf`.
        flows: names of the flows to run; none: all.
        once: True: every flow as if its trigger were "once"; None: as the pipeline says.
        on_progress: told how far all flows are, about twice a second and at the end.
        stop: the flows end after their running batch when it is set.
        is_verbose: whether Spark may write its log (of a session that is made here) and PySpark its errors.

    Returns:
        How each flow ended, in the pipeline's order.

    Raises:
        ConnectionLost: the broker cannot be reached, so that Spark was not started.
        SparrowError: a flow cannot be started; those that ran have been stopped.
    """
    selected = chosen(pipeline, flows)
    target = broker_target(pipeline.broker)
    if spark is None:
        if not _is_elsewhere(remote):
            # Spark takes ten seconds to start; that there is no broker is known at once.
            connect(target).close()
        # What went wrong is told once, by us.
        is_started = _is_elsewhere(remote) or active_session() is not None
        quiet = {} if is_verbose or is_started else quiet_settings()
        spark = session(
            pipeline.name, master=master, remote=remote, conf={**quiet, **pipeline.spark, **(conf or {})}
        )
    directory = os.path.dirname(pipeline.file) if pipeline.file else os.getcwd()
    build = Build(spark, _with_absolute_checkpoints(pipeline), directory)
    triggers = {flow.name: Once() if once else pipeline.trigger_of(flow) for flow in selected}
    with ExitStack() as stack:
        if not is_verbose:
            stack.enter_context(quiet_loggers())
        reporter = stack.enter_context(Reporter(target, pipeline.name, uuid.uuid4().hex))
        running = _Run(build, selected, triggers, stop or threading.Event())
        stack.callback(running.kill)
        running.listeners = [reporter.tell, *([on_progress] if on_progress else [])]
        running.supervise()
    return running.outcomes()


class _Run:
    """One run, in the thread of the caller."""

    def __init__(
        self, build: Build, flows: Sequence[Flow], triggers: Mapping[str, Trigger], stop: Stop
    ) -> None:
        self._flows = {flow.name: RunningFlow(build, flow, triggers[flow.name]) for flow in flows}
        self._together = [flow for flow in flows if isinstance(triggers[flow.name], Every)]
        self._ordered = generations(flow for flow in flows if isinstance(triggers[flow.name], Once))
        self._begun: list[RunningFlow] = []
        self._stop = stop
        self._told_at = 0.0
        self._is_over = False
        self.listeners: list[OnProgress] = []

    def supervise(self) -> None:
        """Until all have ended."""
        try:
            self._start(self._together)
            for generation in self._ordered:
                begun = self._start(generation)
                if not self._watch(begun):
                    break
            else:
                self._watch(self._begun)
        finally:
            self._is_over = True
            self._tell()

    def kill(self) -> None:
        """Leave nothing behind."""
        for flow in self._begun:
            flow.kill()

    def outcomes(self) -> list[Outcome]:
        """How each flow ended."""
        return [
            Outcome(name, progress, flow.failure)
            for (name, flow), progress in zip(self._flows.items(), self._progress(), strict=True)
        ]

    def _start(self, flows: Iterable[Flow]) -> list[RunningFlow]:
        """Those that were started: all, if it is not the time to stop."""
        begun = []
        for flow in (self._flows[each.name] for each in flows):
            if self._is_stopped_before_room():
                break
            self._begun.append(flow)
            begun.append(flow)
            flow.start()
            self._tell()
        return begun

    def _is_stopped_before_room(self) -> bool:
        """Wait until few enough queries are about to begin; whether it is time to stop."""
        while sum(flow.initializing for flow in self._begun) >= BEGINNING_AT_ONCE:
            if self._stop.wait(POLL_S):
                return True
        return self._stop.wait(0)

    def _watch(self, awaited: Sequence[RunningFlow]) -> bool:
        """Until these have ended; False: all had to stop."""
        while True:
            states = [(flow, flow.look()) for flow in self._begun]
            if any(flow.failure is not None for flow in self._begun):
                self._end()
                return False
            if not any(is_active for flow, is_active in states if flow in awaited):
                return True
            self._tell_at_times()
            if self._stop.wait(POLL_S):
                self._end()
                return False

    def _end(self) -> None:
        for flow in self._begun:
            flow.end()

    def _progress(self) -> list[Progress]:
        """Before the end, a flow that has not begun is one that is going to."""
        found = [(flow, flow.progress()) for flow in self._flows.values()]
        return [
            replace(progress, state=SKIPPED) if self._is_over and flow not in self._begun else progress
            for flow, progress in found
        ]

    def _tell_at_times(self) -> None:
        if time.monotonic() - self._told_at >= PROGRESS_S:
            self._tell()

    def _tell(self) -> None:
        self._told_at = time.monotonic()
        progress = self._progress()
        for listener in self.listeners:
            listener(progress)


def _is_elsewhere(remote: str | None) -> bool:
    """Whether the session is one of a server whose settings are its own."""
    return remote is not None and not remote.startswith("local")


def _with_absolute_checkpoints(pipeline: Pipeline) -> Pipeline:
    """Spark Connect's server may have another working directory."""
    if "://" in pipeline.checkpoints or pipeline.checkpoints.startswith("file:"):
        return pipeline
    return replace(pipeline, checkpoints=os.path.abspath(pipeline.checkpoints))
