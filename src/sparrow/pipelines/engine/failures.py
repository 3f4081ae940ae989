"""Failures in Spark as a sentence: the reason without the stack traces of Java and Python around
it. The full text is kept as detail.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pyspark.errors import PySparkException

from sparrow.base.errors import SparrowError
from sparrow.pipelines.engine.expectations import REFUSED

_MAX_CHARS: Final = 600
_OURS: Final = re.compile(r"(?:^|[\s'\"])sparrow\.base\.errors\.\w+: ([^\n]+)")
_CLASS: Final = r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] "
_CLASSED: Final = re.compile(rf"{_CLASS}((?:(?!{_CLASS})[^\n])+)")
_RAISED: Final = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*(?:Error|Exception)): ([^\n]+)", re.MULTILINE)
_ENVELOPES: Final = frozenset(
    {"STREAM_FAILED", "PYTHON_EXCEPTION", "FOREACH_BATCH_USER_FUNCTION_ERROR", "TASK_WRITE_FAILED"}
)
"""Classes of Spark's errors that only say that something inside failed."""
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+.*$")
_QUOTED: Final = re.compile(
    r"\[USER_RAISED_EXCEPTION\] " + re.escape(REFUSED) + r"\s*([^\n]+?)\s*(?:SQLSTATE: \w+)?\s*$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Failure:
    """The failure that ended a flow.

    Args:
        text: flow, batch and reason in a sentence.
        detail: the full text from Spark.
    """

    text: str
    detail: str = ""


def flow_failure(flow: str, batch: int | None, error: BaseException | None) -> Failure:
    """Return the failure of a flow's query."""
    where = f"flow {flow}" if batch is None else f"flow {flow}, batch {batch}"
    reason = "it ended for a reason that Spark did not tell" if error is None else first_line(error)
    return Failure(f"{where}: {reason}", "" if error is None else str(error))


def first_line(error: BaseException) -> str:
    """Return the reason as one line."""
    if isinstance(error, SparrowError):
        return error.text
    text = str(error)
    return _shortened(_reason(text) or _named(error, text.strip().partition("\n")[0]))


def _reason(text: str) -> str:
    for pattern in (_QUOTED, _OURS):
        found = pattern.findall(text)
        if found:
            return str(found[-1])
    classed = [found for found in _CLASSED.finditer(text) if found[1] not in _ENVELOPES]
    if classed:
        return f"{_STATE.sub('', classed[-1][2]).strip()} [{classed[-1][1]}]"
    raised = _RAISED.findall(text)
    if raised:
        return f"{raised[-1][0]}: {raised[-1][1]}"
    return ""


def _named(error: BaseException, line: str) -> str:
    """Add the class's name to a Python exception, which says little without it: KeyError: 'id'."""
    name = type(error).__name__
    return line if isinstance(error, PySparkException) and line else f"{name}: {line}" if line else name


def _shortened(line: str) -> str:
    line = _STATE.sub("", line).strip()
    return line if len(line) <= _MAX_CHARS else f"{line[: _MAX_CHARS - 1]}…"
