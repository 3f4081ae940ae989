"""Runner of a pipeline's flows: it starts them in order, watches them and stops them.

Flows that run once follow each other if one reads the output of another; continuous flows all start
at the beginning. When one flow fails, the others stop after their running batch, and flows that
have not begun do not begin. The same happens when the caller asks for the end.
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

from sparrow.pipelines.engine.build import Build
from sparrow.pipelines.engine.graph import chosen, generations
from sparrow.pipelines.engine.progress import SKIPPED, Progress
from sparrow.pipelines.engine.queries import RunningFlow
from sparrow.pipelines.engine.reporter import Reporter
from sparrow.pipelines.engine.sources import broker_target
from sparrow.pipelines.model import Every, Once
from sparrow.spark.quiet_loggers import quiet_loggers, quiet_settings
from sparrow.spark.session import active_session, session
from sparrow.spark.wire import connect

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pyspark.sql import SparkSession

    from sparrow.pipelines.engine.failures import Failure
    from sparrow.pipelines.model import Flow, PipelineModel, Trigger

OnProgress = Callable[[Sequence[Progress]], None]
POLL_S: Final = 0.2
PROGRESS_S: Final = 0.5
BEGINNING_AT_ONCE: Final = max(2, os.cpu_count() or 2)
"""Number of queries that start at the same time. Each starts a Python process, to which Spark gives
10 s: of twenty at once on two cores, none would be ready.
"""


class Stop(Protocol):
    """Request to stop, such as a `threading.Event`."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most this many seconds for the request. Return True if it was made."""
        ...


@dataclass(frozen=True)
class Outcome:
    """Result of a flow.

    Args:
        flow: its name.
        progress: the last that was known; its state is "done", "stopped", "failed" or "skipped"
            (not begun, because another failed or all stopped).
        failure: the reason of a failure, otherwise None.
    """

    flow: str
    progress: Progress
    failure: Failure | None = None


def run(
    pipeline: PipelineModel,
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
        spark: the session; None: the one of this process, or a new one of `master`, `remote` and
            `conf`.
        flows: names of the flows to run; none: all.
        once: True: every flow as if its trigger were "once"; None: the pipeline's own triggers.
        on_progress: called with the progress of all flows, about twice a second and at the end.
        stop: the flows end after their running batch when it is set.
        is_verbose: show Spark's log (of a session that is made here) and PySpark's errors.

    Returns:
        The outcome of each flow, in the pipeline's order.

    Raises:
        ConnectionLost: the broker does not answer, so Spark was not started.
        SparrowError: a flow cannot be started; those that ran have been stopped.
    """
    selected = chosen(pipeline, flows)
    target = broker_target(pipeline.broker)
    if spark is None:
        if not _is_elsewhere(remote):
            # Spark takes ten seconds to start, so find out first if there is no broker.
            connect(target).close()
        # This engine reports each error once, so silence PySpark's own report.
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
        reporter = stack.enter_context(Reporter(target, pipeline.name, uuid.uuid4().hex, selected))
        running = _Run(build, selected, triggers, stop or threading.Event())
        stack.callback(running.kill)
        running.listeners = [reporter.update, *([on_progress] if on_progress else [])]
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
        self._reported_at = 0.0
        self._is_over = False
        self.listeners: list[OnProgress] = []

    def supervise(self) -> None:
        """Run until all flows have ended."""
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
            self._report()

    def kill(self) -> None:
        """Stop everything now."""
        for flow in self._begun:
            flow.kill()

    def outcomes(self) -> list[Outcome]:
        """Return the outcome of each flow."""
        return [
            Outcome(name, progress, flow.failure)
            for (name, flow), progress in zip(self._flows.items(), self._progress(), strict=True)
        ]

    def _start(self, flows: Iterable[Flow]) -> list[RunningFlow]:
        """Start the flows until a stop is requested. Return those that were started."""
        begun = []
        for flow in (self._flows[each.name] for each in flows):
            if self._is_stopped_before_room():
                break
            self._begun.append(flow)
            begun.append(flow)
            flow.start()
            self._report()
        return begun

    def _is_stopped_before_room(self) -> bool:
        """Wait until few enough queries are starting. Return True if a stop is requested."""
        while sum(flow.initializing for flow in self._begun) >= BEGINNING_AT_ONCE:
            if self._stop.wait(POLL_S):
                return True
        return self._stop.wait(0)

    def _watch(self, awaited: Sequence[RunningFlow]) -> bool:
        """Wait until these flows have ended. Return False if all flows had to stop."""
        while True:
            states = [(flow, flow.look()) for flow in self._begun]
            if any(flow.failure is not None for flow in self._begun):
                self._end()
                return False
            if not any(is_active for flow, is_active in states if flow in awaited):
                return True
            self._report_at_intervals()
            if self._stop.wait(POLL_S):
                self._end()
                return False

    def _end(self) -> None:
        for flow in self._begun:
            flow.end()

    def _progress(self) -> list[Progress]:
        """Return the progress of all flows. A flow that has not begun counts as skipped only at the
        end.
        """
        found = [(flow, flow.progress()) for flow in self._flows.values()]
        return [
            replace(progress, state=SKIPPED) if self._is_over and flow not in self._begun else progress
            for flow, progress in found
        ]

    def _report_at_intervals(self) -> None:
        if time.monotonic() - self._reported_at >= PROGRESS_S:
            self._report()

    def _report(self) -> None:
        self._reported_at = time.monotonic()
        progress = self._progress()
        for listener in self.listeners:
            listener(progress)


def _is_elsewhere(remote: str | None) -> bool:
    """Return True if the session belongs to a server with settings of its own."""
    return remote is not None and not remote.startswith("local")


def _with_absolute_checkpoints(pipeline: PipelineModel) -> PipelineModel:
    """Make the path absolute, because Spark Connect's server may have another working directory."""
    if "://" in pipeline.checkpoints or pipeline.checkpoints.startswith("file:"):
        return pipeline
    return replace(pipeline, checkpoints=os.path.abspath(pipeline.checkpoints))
