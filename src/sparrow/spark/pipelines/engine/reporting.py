"""Reports of a running pipeline to the broker, which shows them by `sparrow pipeline list` and its metrics.

A thread of its own sends the newest, each flow's at most once a second; that the broker cannot be reached is no matter of the pipeline's.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

from sparrow.base.errors import SparrowError
from sparrow.spark.wire import connect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.spark.pipelines.engine.progress import Progress
    from sparrow.spark.wire import Link, Target

INTERVAL_S: Final = 1.0
_TIMEOUT_S: Final = 2.0
_PAUSE_S: Final = 10.0
"""How long a broker is left alone that did not answer."""


class Reporter:
    """Sends reports while it is entered; the last ones are sent when it is left."""

    def __init__(self, target: Target, pipeline: str, run: str) -> None:
        self._target = replace(target, retries=0, connect_timeout_s=_TIMEOUT_S, call_timeout_s=_TIMEOUT_S)
        self._pipeline, self._run = pipeline, run
        self._lock = threading.Lock()
        self._newest: dict[str, Progress] = {}
        self._sent: dict[str, Progress] = {}
        self._link: Link | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._send_until_end, name="pipeline reports", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(2 * _TIMEOUT_S)

    def tell(self, flows: Sequence[Progress]) -> None:
        """The newest of each flow."""
        with self._lock:
            self._newest = {each.flow: each for each in flows}

    def _send_until_end(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._ending.wait(INTERVAL_S)
            if not self._send() and not is_last:
                is_last = self._ending.wait(_PAUSE_S)
        self._send()
        if self._link is not None:
            self._link.close()

    def _send(self) -> bool:
        """Whether the broker took them."""
        with self._lock:
            due = list(self._newest.values())
        if not due:
            return True
        try:
            self._link = self._link or connect(self._target)
            for progress in due:
                self._link.call("pipeline.report", self._report(progress))
        except (SparrowError, OSError):
            return False
        return True

    def _report(self, progress: Progress) -> dict[str, Any]:
        return {
            "name": self._pipeline,
            "flow": progress.flow,
            "run": self._run,
            "state": progress.state,
            "rows": progress.rows,
            "rows_per_second": progress.rows_per_second,
            "batch_ms": progress.batch_ms,
            "lag": progress.lag,
            "batch": -1 if progress.batch is None else progress.batch,
            "error": progress.error,
            "started_ms": progress.started_ms,
        }
