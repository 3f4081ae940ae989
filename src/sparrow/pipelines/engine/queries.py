"""A running flow: its query, the query of its dead letters, their progress and their failure."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import SparrowError
from sparrow.pipelines.engine.failures import Failure, flow_failure
from sparrow.pipelines.engine.progress import DONE, FAILED, RUNNING, STARTING, STOPPED, ProgressTally
from sparrow.pipelines.engine.sinks import start_sink
from sparrow.pipelines.engine.sinks.plan import QueryPlan
from sparrow.pipelines.engine.sinks.topic import start_messages
from sparrow.pipelines.engine.states import newest_batch
from sparrow.pipelines.model import APPEND

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from sparrow.pipelines.engine.build import Build
    from sparrow.pipelines.engine.progress import Progress
    from sparrow.pipelines.model import Flow, Trigger

STOP_GRACE_S: Final = 60.0
"""Seconds that a running batch may still take when the pipeline is to stop."""
_POLL_S: Final = 0.05
_INITIALIZING: Final = "Initializing"
"""Beginning of Spark's status message while the sources of a query start."""


class Notes:
    """The error of a batch, because Spark keeps only its text."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def note(self, error: BaseException) -> None:
        """Keep the error."""
        self.error = error


class RunningFlow:
    """The queries of one flow, started. Used by one thread."""

    def __init__(self, build: Build, flow: Flow, trigger: Trigger) -> None:
        self.flow = flow
        self.failure: Failure | None = None
        self._build, self._trigger = build, trigger
        self._tally = ProgressTally(flow.name)
        self._notes = Notes()
        self._is_stopped = False
        self._queries: list[StreamingQuery] = []
        self._reported = ""

    def start(self) -> None:
        """Start the queries. After a failure none of them runs.

        Raises:
            SparrowError: the flow cannot be started.
        """
        made = self._build.flow(self.flow)
        rows, dead = made.rows, made.dead
        broker = self._build.pipeline.broker
        try:
            if dead is not None:
                plan = self._plan(is_dead=True)
                topic = self.flow.dead_letters or ""
                self._queries.append(start_messages(dead, topic, plan, broker.options()))
            self._queries.insert(0, start_sink(rows, self.flow.sink, self._plan(is_dead=False), broker))
        except BaseException as error:
            self.kill()
            if isinstance(error, SparrowError):
                raise type(error)(f"flow {self.flow.name}: {error.text}") from error
            if isinstance(error, Exception):
                raise SparrowError(flow_failure(self.flow.name, None, error).text) from error
            raise

    @property
    def is_active(self) -> bool:
        """Return True if a query runs."""
        return any(query.isActive for query in self._queries)

    @property
    def initializing(self) -> int:
        """Return the number of queries whose sources still start."""
        return sum(
            query.isActive and str(query.status["message"]).startswith(_INITIALIZING)
            for query in self._queries
        )

    def look(self) -> bool:
        """Take in the reports and the ends of the queries. Return True if the flow still runs."""
        # Asked before the reports are taken, so that none of a query that has ended is missed.
        is_active = self.is_active
        self._take()
        for index, query in enumerate(self._queries):
            if query.isActive or self.failure is not None:
                continue
            error = query.exception()
            if error is not None and not self._is_stopped:
                name = self.flow.name if index == 0 else f"{self.flow.name} (dead letters)"
                checkpoint = self._build.pipeline.checkpoint_of(self.flow, is_dead=index > 0)
                self.failure = flow_failure(name, newest_batch(checkpoint), self._cause(error, index))
                self.kill()
        return is_active and self.failure is None

    def end(self) -> None:
        """Stop after the batches that run now."""
        self._is_stopped = True
        deadline = time.monotonic() + STOP_GRACE_S
        waiting = [(query, _batches(query)) for query in self._queries if query.isActive]
        while waiting and time.monotonic() < deadline:
            waiting = [each for each in waiting if not _stopped_at_rest(*each)]
            if waiting:
                time.sleep(_POLL_S)
        self.kill()
        self._take()

    def kill(self) -> None:
        """Stop now; an interrupted batch is repeated by the next start."""
        for query in self._queries:
            if query.isActive:
                query.stop()

    def progress(self) -> Progress:
        """Return the progress of the flow."""
        return self._tally.progress(self._state(), self.failure.text if self.failure else "")

    def _state(self) -> str:
        if self.failure is not None:
            return FAILED
        if self.is_active:
            return RUNNING
        if not self._queries:
            return STARTING
        return STOPPED if self._is_stopped else DONE

    def _plan(self, *, is_dead: bool) -> QueryPlan:
        pipeline, flow = self._build.pipeline, self.flow
        return QueryPlan(
            flow=flow.name,
            name=pipeline.query_name(flow, is_dead=is_dead),
            checkpoint=pipeline.checkpoint_of(flow, is_dead=is_dead),
            id=self._build.state(flow).id,
            trigger=self._trigger,
            mode=APPEND if is_dead else flow.mode,
            note_failure=self._notes.note,
        )

    def _take(self) -> None:
        if not self._queries:
            return
        query = self._queries[0]
        last: Any = query.lastProgress
        if last is not None and last["timestamp"] != self._reported:
            self._reported = last["timestamp"]
            self._tally.take(query.recentProgress)

    def _cause(self, error: BaseException, index: int) -> BaseException:
        return self._notes.error if index == 0 and self._notes.error is not None else error


def _batches(query: StreamingQuery) -> str:
    last: Any = query.lastProgress
    return "" if last is None else str(last["timestamp"])


def _stopped_at_rest(query: StreamingQuery, reported: str) -> bool:
    """Stop the query if no batch runs, or another one was reported since. Return True if it
    ended.
    """
    if not query.isActive:
        return True
    status = query.status
    if status["isTriggerActive"] and status["isDataAvailable"] and _batches(query) == reported:
        return False
    query.stop()
    return True
