"""The check of reports of pipelines: no size or value in them is trusted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from sparrow.base.errors import InvalidArgument

if TYPE_CHECKING:
    from sparrow.model.pipelines import Report

MAX_NAME: Final = 249
MAX_ERROR: Final = 2_000
MAX_SOURCES: Final = 20
MAX_TARGET: Final = 500
_LARGEST: Final = (1 << 63) - 1


def checked(report: Report) -> Report:
    """Return the report, its error and places cut to a bounded length.

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
        "refused": report.refused,
        "started_ms": report.started_ms,
    }
    for what, number in numbers.items():
        if not math.isfinite(number) or not 0 <= number <= _LARGEST:
            raise InvalidArgument(f"{what} is {number} in a report of a pipeline; it must be 0 or more")
    sources = [each[:MAX_NAME] for each in report.sources[:MAX_SOURCES]]
    return replace(report, error=report.error[:MAX_ERROR], sources=sources, target=report.target[:MAX_TARGET])
