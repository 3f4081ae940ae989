"""Reports of a running pipeline to the broker, for `sparrow pipeline list` and the broker's
metrics.

A separate thread sends the newest report of each flow at most once a second. The pipeline runs on
if the broker does not answer.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

from sparrow.base.errors import SparrowError
from sparrow.spark.wire import connect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.pipelines.engine.progress import Progress
    from sparrow.pipelines.model import Flow
    from sparrow.spark.wire import Session, Target

INTERVAL_S: Final = 1.0
_TIMEOUT_S: Final = 2.0
_PAUSE_S: Final = 10.0
"""Seconds to wait after a broker did not answer."""


class Reporter:
    """Context manager that sends reports; the last ones are sent at its end. `flows` are those of
    the pipeline, for the places that they read and write.
    """

    def __init__(self, target: Target, pipeline: str, run: str, flows: Sequence[Flow] = ()) -> None:
        self._target = replace(target, retries=0, connect_timeout_s=_TIMEOUT_S, call_timeout_s=_TIMEOUT_S)
        self._pipeline, self._run = pipeline, run
        self._places = {each.name: places_of(each) for each in flows}
        self._lock = threading.Lock()
        self._newest: dict[str, Progress] = {}
        self._sent: dict[str, Progress] = {}
        self._session: Session | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._send_until_end, name="pipeline reports", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(2 * _TIMEOUT_S)

    def update(self, flows: Sequence[Progress]) -> None:
        """Set the newest progress of each flow."""
        with self._lock:
            self._newest = {each.flow: each for each in flows}

    def _send_until_end(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._ending.wait(INTERVAL_S)
            if not self._send() and not is_last:
                is_last = self._ending.wait(_PAUSE_S)
        self._send()
        if self._session is not None:
            self._session.close()

    def _send(self) -> bool:
        """Send the newest reports. Return True if the broker took them."""
        with self._lock:
            due = list(self._newest.values())
        if not due:
            return True
        try:
            self._session = self._session or connect(self._target)
            for progress in due:
                self._session.call("pipeline.report", self._report(progress))
        except (SparrowError, OSError):
            return False
        return True

    def _report(self, progress: Progress) -> dict[str, Any]:
        sources, target = self._places.get(progress.flow, ([], ""))
        return {
            "sources": sources,
            "target": target,
            "name": self._pipeline,
            "flow": progress.flow,
            "run": self._run,
            "state": progress.state,
            "rows": progress.rows,
            "rows_per_second": progress.rows_per_second,
            "batch_ms": progress.batch_ms,
            "lag": progress.lag,
            "batch": -1 if progress.batch is None else progress.batch,
            "refused": sum(progress.refused.values()),
            "error": progress.error,
            "started_ms": progress.started_ms,
        }


def places_of(flow: Flow) -> tuple[list[str], str]:
    """Return what a flow reads, and what it writes, for people."""
    source, sink = flow.source, flow.sink
    named = [*source.topics, *filter(None, (source.pattern, source.flow))]
    target = next((getattr(sink, name) for name in ("topic", "table", "path") if hasattr(sink, name)), "")
    return named, target or sink.KEY
