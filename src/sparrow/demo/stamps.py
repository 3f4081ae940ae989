"""Forms of times in logs: each as a regular expression with Spark's and Python's way to read what it finds.

Regular expressions are of the words that Java's and Python's have in common, and the same for both. Zones are left out: times are taken as they stand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sparrow.demo.sqltext import quoted

_CLOCK: Final = "[0-9]{2}:[0-9]{2}:[0-9]{2}"
_YEAR: Final = "[12][0-9]{3}"
NO_YEAR: Final = "YEAR "
"""The prefix of a form that does not tell the year; whoever uses it puts one there."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """A form of times, to the second.

    Args:
        pattern: of the text around; its group is the time.
        spark: as Spark's `to_timestamp` is told; "" for ISO 8601, "s" and "ms" for a number since 1970.
        python: as `strptime` is told.
        prefix: what is put before it, such as a century.
    """

    pattern: str
    spark: str = ""
    python: str = ""
    prefix: str = ""

    def read(self, text: str) -> datetime | None:
        """The time in a text; None: there is none."""
        found = re.search(self.pattern, text)
        if found is None:
            return None
        try:
            return self._parsed(self.prefix + re.sub(" +", " ", found[1]))
        except (ValueError, OverflowError):
            return None

    def sql(self, text: str) -> str:
        """The same as an expression of Spark SQL over a text."""
        found = f"regexp_extract({text}, {quoted(self.pattern)}, 1)"
        if self.spark in {"s", "ms"}:
            made = "timestamp_seconds" if self.spark == "s" else "timestamp_millis"
            return f"date_trunc('SECOND', {made}(try_cast({found} AS bigint)))"
        if not self.spark:
            return f"try_cast({found} AS timestamp)"
        single = f"regexp_replace({found}, ' +', ' ')"
        full = f"concat({quoted(self.prefix)}, {single})" if self.prefix else single
        return f"try_to_timestamp({full}, {quoted(self.spark)})"

    def _parsed(self, text: str) -> datetime:
        if self.spark in {"s", "ms"}:
            return datetime.fromtimestamp(int(text) // (1000 if self.spark == "ms" else 1), UTC)
        # The zone comes in the next line.
        read = datetime.strptime(text, self.python) if self.python else datetime.fromisoformat(text)  # noqa: DTZ007
        return read.replace(tzinfo=UTC)


ISO: Final = Stamp(f"({_YEAR}-[0-9]{{2}}-[0-9]{{2}}[T ]{_CLOCK})")
STAMPS: Final = (
    ISO,
    Stamp(f"({_YEAR}/[0-9]{{2}}/[0-9]{{2}} {_CLOCK})", "yyyy/MM/dd HH:mm:ss", "%Y/%m/%d %H:%M:%S"),
    Stamp(f"([0-9]{{2}}/[A-Z][a-z]{{2}}/{_YEAR}:{_CLOCK})", "dd/MMM/yyyy:HH:mm:ss", "%d/%b/%Y:%H:%M:%S"),
    Stamp(f"([A-Z][a-z]{{2}} [ 0-9][0-9] {_CLOCK} {_YEAR})", "MMM d HH:mm:ss yyyy", "%b %d %H:%M:%S %Y"),
    Stamp(
        f"({_YEAR}-[0-9]{{2}}-[0-9]{{2}}-[0-9]{{2}}[.][0-9]{{2}}[.][0-9]{{2}})",
        "yyyy-MM-dd-HH.mm.ss",
        "%Y-%m-%d-%H.%M.%S",
    ),
    Stamp(f"([0-9]{{1,2}} [A-Z][a-z]{{2}} {_YEAR} {_CLOCK})", "d MMM yyyy HH:mm:ss", "%d %b %Y %H:%M:%S"),
    Stamp(f"([0-9]{{2}}[.][0-9]{{2}}[.]{_YEAR} {_CLOCK})", "dd.MM.yyyy HH:mm:ss", "%d.%m.%Y %H:%M:%S"),
    Stamp(f"^([0-9]{{2}}/[0-9]{{2}}/[0-9]{{2}} {_CLOCK})", "yyyy/MM/dd HH:mm:ss", "%Y/%m/%d %H:%M:%S", "20"),
    Stamp("^([0-9]{6} [0-9]{6}) ", "yyyyMMdd HHmmss", "%Y%m%d %H%M%S", "20"),
    Stamp(
        f"^({_YEAR}[0-9]{{4}}-[0-9]{{1,2}}:[0-9]{{1,2}}:[0-9]{{1,2}})", "yyyyMMdd-H:m:s", "%Y%m%d-%H:%M:%S"
    ),
    Stamp(
        f"^(?:<[0-9]+>)?([A-Z][a-z]{{2}} [ 0-9][0-9] {_CLOCK})",
        "yyyy MMM d HH:mm:ss",
        "%Y %b %d %H:%M:%S",
        NO_YEAR,
    ),
    Stamp("(?<![0-9])(1[0-9]{9})(?![0-9])", "s"),
    Stamp("(?<![0-9])(1[0-9]{12})(?![0-9])", "ms"),
)
"""Those before others that fit the same lines."""
