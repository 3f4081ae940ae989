"""The run of `sparrow pipeline run` after the checks: Spark in a thread, signals in the main one,
progress between.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sparrow.base.errors import InvalidArgument
from sparrow.cli.exits import FAILED, INTERRUPTED, OK, TERMINATED, say
from sparrow.cli.tables import print_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sparrow.pipelines.engine import Outcome, Progress
    from sparrow.pipelines.pipeline import Pipeline

_POLL_S = 0.2
_LINES_S = 5.0
"""Interval at which the progress of a running flow is written as JSON."""


def settings_of(conf: Sequence[str]) -> dict[str, object]:
    """Parse `--conf NAME=VALUE`, as the session takes them.

    Raises:
        InvalidArgument: a text without "=".
    """
    found: dict[str, object] = {}
    for pair in conf:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise InvalidArgument(f"--conf {pair}: write NAME=VALUE, such as spark.executor.memory=4g")
        found[name.strip()] = value
    return found


def run_until_stopped(pipeline: Pipeline, options: dict[str, Any], *, as_json: bool) -> int:
    """Run a pipeline that was checked, and return the exit code.

    Args:
        options: of `engine.run`.
        as_json: write progress and outcomes as lines of JSON on stdout, instead of a table.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not options.get("is_verbose"):
        # Errors report what goes wrong between the driver's Python and Java, so its log is not
        # needed.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
    ending = _Ending()
    ending.listen()
    try:
        outcomes = _supervised(pipeline, options, ending, as_json=as_json)
    finally:
        ending.restore()
    code = _print_outcomes(outcomes, is_verbose=bool(options.get("is_verbose")), as_json=as_json)
    return ending.exit_code or code


def _supervised(
    pipeline: Pipeline, options: dict[str, Any], ending: _Ending, *, as_json: bool
) -> Sequence[Outcome]:
    from sparrow.pipelines import engine

    found: list[Sequence[Outcome]] = []
    errors: list[BaseException] = []

    def work(show: Callable[[Sequence[Progress]], None]) -> None:
        try:
            found.append(engine.run(pipeline, on_progress=show, stop=ending.event, **options))
        except BaseException as error:  # noqa: BLE001 - raised again by the main thread
            errors.append(error)

    with _shown(as_json=as_json) as show:
        thread = threading.Thread(target=work, args=(show,), name="pipeline", daemon=True)
        thread.start()
        while thread.is_alive():
            # A join without an end would keep signals from being handled.
            thread.join(_POLL_S)
    if errors:
        raise errors[0]
    return found[0]


def _shown(*, as_json: bool) -> Any:
    """Return where progress goes: a table on stderr, so that stdout has what the pipeline itself
    prints, or lines of JSON on stdout.
    """
    from contextlib import contextmanager

    if as_json:
        return contextmanager(_json_lines)()
    from rich.console import Console

    from sparrow.pipelines.engine.display import Display

    @contextmanager
    def displayed() -> Iterator[Callable[[Sequence[Progress]], None]]:
        with Display(Console(stderr=True)) as display:
            yield display.show

    return displayed()


def _json_lines() -> Iterator[Callable[[Sequence[Progress]], None]]:
    written: dict[str, tuple[float, Progress]] = {}

    def show(flows: Sequence[Progress]) -> None:
        for each in flows:
            at, before = written.get(each.flow, (0.0, None))
            is_news = before is None or before.state != each.state
            if is_news or (before != each and time.monotonic() - at >= _LINES_S):
                written[each.flow] = time.monotonic(), each
                print(json.dumps({"progress": asdict(each)}), flush=True)

    yield show


def _print_outcomes(outcomes: Sequence[Outcome], *, is_verbose: bool, as_json: bool) -> int:
    """Print how the flows ended."""
    if as_json:
        for each in outcomes:
            print(json.dumps({"outcome": asdict(each)}))
    else:
        rows = [
            (each.flow, each.progress.state, each.progress.batches, each.progress.rows) for each in outcomes
        ]
        print_table(("FLOW", "STATE", "BATCHES", "ROWS"), rows)
    failures = [each.failure for each in outcomes if each.failure is not None]
    for failure in failures:
        say(failure.text)
        if is_verbose and failure.detail:
            print(failure.detail, file=sys.stderr)
    if failures and not is_verbose:
        say("--verbose shows all that Spark says of it")
    return FAILED if failures else OK


class _Ending:
    """Handlers of SIGINT and SIGTERM: the first signal asks the flows to end, the second ends the
    process.
    """

    def __init__(self) -> None:
        self.event = threading.Event()
        self.exit_code = 0
        self._before: dict[int, Any] = {}

    def listen(self) -> None:
        """Handle both signals from now on. Only the main thread gets signals."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            # A shell that runs a command in the background makes it ignore Ctrl-C.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._receive)

    def restore(self) -> None:
        """Restore the former handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, _: object) -> None:
        if self.event.is_set():
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self.exit_code = INTERRUPTED if number == signal.SIGINT else TERMINATED
        self.event.set()
        say("the flows end after their running batch; once more ends them at once")
