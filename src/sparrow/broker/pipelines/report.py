"""What a pipeline says of one of its flows, and the check of it: nothing in it is believed to be small or sane."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from sparrow.base.errors import InvalidArgument

MAX_NAME: Final = 249
MAX_ERROR: Final = 2_000
_LARGEST: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Report:
    """How a flow of a pipeline is doing.

    Args:
        name: the pipeline.
        flow: one of its flows.
        run: differs from start to start.
        state: a word for people: "running", "waiting", "failed", …
        rows: how many rows it took since its start.
        rows_per_second: in the last batch.
        batch_ms: how long the last batch took.
        lag: records that it has still to read; None: not known.
        batch: the number of the last batch; -1: none yet.
        error: why it failed; "": it did not.
        started_ms: when the run began.
        updated_ms: when this was said, by the broker's clock.
    """

    name: str
    flow: str
    run: str = ""
    state: str = "running"
    rows: int = 0
    rows_per_second: float = 0.0
    batch_ms: float = 0.0
    lag: int | None = None
    batch: int = -1
    error: str = ""
    started_ms: int = 0
    updated_ms: int = 0


def checked(report: Report) -> Report:
    """The report, its error cut to a length that can be kept.

    Raises:
        InvalidArgument: a name that is none, a number that is none.
    """
    for what, text in (("name", report.name), ("flow", report.flow), ("state", report.state)):
        if not 0 < len(text) <= MAX_NAME or not text.isprintable():
            raise InvalidArgument(
                f"{text[:40]!r} cannot be the {what} in a report of a pipeline: it must have 1 to {MAX_NAME} printable characters"
            )
    if len(report.run) > MAX_NAME:
        raise InvalidArgument(f"the run in a report of a pipeline is longer than {MAX_NAME} characters")
    numbers = {
        "rows": report.rows,
        "rows_per_second": report.rows_per_second,
        "batch_ms": report.batch_ms,
        "lag": report.lag or 0,
        "started_ms": report.started_ms,
    }
    for what, number in numbers.items():
        if not math.isfinite(number) or not 0 <= number <= _LARGEST:
            raise InvalidArgument(f"{what} is {number} in a report of a pipeline; it must be 0 or more")
    return replace(report, error=report.error[:MAX_ERROR])
