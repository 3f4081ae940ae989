"""Reports of a pipeline about one of its flows, and their check: no size or value in them is
trusted.
"""

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
    """State of a flow of a pipeline.

    Args:
        name: the pipeline.
        flow: one of its flows.
        run: differs from start to start.
        state: a word for people: "running", "waiting", "failed", …
        rows: the number of rows since its start.
        rows_per_second: in the last batch.
        batch_ms: the duration of the last batch.
        lag: records that it has still to read; None: not known.
        batch: the number of the last batch; -1: none yet.
        error: why it failed; "": it did not.
        started_ms: when the run began.
        updated_ms: when this was reported, by the broker's clock.
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
    """Return the report, its error cut to a bounded length.

    Raises:
        InvalidArgument: an invalid name or number.
    """
    for what, text in (("name", report.name), ("flow", report.flow), ("state", report.state)):
        if not 0 < len(text) <= MAX_NAME or not text.isprintable():
            raise InvalidArgument(
                f"{text[:40]!r} cannot be the {what} in a report of a pipeline: it must have 1 to "
                f"{MAX_NAME} printable characters"
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
