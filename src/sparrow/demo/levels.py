"""What `lines.yml` makes of a file, in plain Python: kind and time of each line, and for each kind and stretch of time (or of lines, where they have no times) how many there are."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from sparrow.demo import chart

if TYPE_CHECKING:
    from sparrow.demo.comparing import Key, Row, Sums
    from sparrow.demo.lines import LogFile
    from sparrow.demo.message import Source

_COLUMNS: Final = 60
"""A chart has at most so many."""
_DAY_S: Final = 86_400
WIDTHS_S: Final = tuple(
    [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600]
    + [days * _DAY_S for days in (1, 7, 30, 365)]
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Stretches:
    """What lines are counted by.

    Args:
        seconds: so many belong together; 0: lines have no time.
        lines: then so many of them belong together.
    """

    seconds: int = 3600
    lines: int = 1000

    def of(self, identity: str, time_s: int | None) -> int | None:
        """The stretch of a line: its first second since 1970, or its first line's number; None: not known."""
        if self.seconds:
            return None if time_s is None else time_s // self.seconds * self.seconds
        number = identity.rpartition(":")[2]
        return (int(number) - 1) // self.lines * self.lines + 1 if number.isdecimal() else None

    def step(self) -> str:
        """As the step of the pipeline that counts."""
        start = f"timestamp_seconds(floor(unix_seconds(time) / {self.seconds}) * {self.seconds})"
        if not self.seconds:
            number = "try_cast(substring_index(id, ':', -1) AS bigint)"
            start = f"floor(({number} - 1) / {self.lines}) * {self.lines} + 1"
        return f"SELECT kind, {start} AS start FROM input"  # noqa: S608


class Levels:
    """The lines of a file, see `comparing.Subject`."""

    file = "lines.yml"
    what = "lines"
    sums_flow = "levels"
    columns: tuple[str, ...] = ("id", "time", "kind", "line")

    def __init__(self, source: LogFile) -> None:
        self._source = source
        self.stretches = stretches_of(source)

    def adapt(self, flows: Mapping[str, Any]) -> None:
        """What the file says of levels and times in ISO 8601, as these lines have it."""
        shape = self._source.shape
        flows["table"]["steps"] = [{"sql": shape.word_step()}, {"sql": shape.kind_step()}]
        flows["levels"]["steps"][0] = {"sql": self.stretches.step()}

    def row(self, columns: Mapping[str, Any]) -> Row:
        time = columns["time"]
        # Spark's times in Parquet have no zone, and are UTC.
        at = None if time is None else _seconds(time.replace(tzinfo=UTC))
        return columns["id"], at, columns["kind"], _checksum(columns["line"])

    def rows(self, source: Source) -> Iterator[Row]:
        for message in source.messages():
            line = message.value.decode()
            kind, time = self._source.shape.read(line)
            yield message.id, None if time is None else _seconds(time), kind, _checksum(line)

    def add(self, sums: Sums, row: Row) -> None:
        identity, time_s, kind, _ = row
        sums.setdefault((kind, self.stretches.of(identity, time_s)), [0])[0] += 1

    def read(self, value: bytes) -> tuple[Key, list[int]]:
        found = json.loads(value)
        start = found["start"]
        if isinstance(start, str):
            start = _seconds(datetime.fromisoformat(start))
        return (found["kind"], start), [found["lines"]]

    def draw(self, sums: Sums, path: str) -> None:
        starts = [start for _, start in sums if start is not None]
        shown = {key: found[0] for key, found in sums.items() if key[1] is not None or not starts}
        counts = {(kind, self._place(start)): count for (kind, start), count in shown.items()}
        places = [self._place(each) for each in self._places(starts)]
        title = self._source.title
        if hidden := sum(found[0] for key, found in sums.items() if key not in shown):
            title += f" ({hidden:,} without a time are not shown)"
        y_label = "objects" if self._source.is_ndjson else "lines"
        chart.draw_columns(counts, places, path, title=title, x_label=self._axis(), y_label=y_label)

    def _places(self, starts: Sequence[int]) -> Iterable[int | None]:
        """All from the first to the last, the empty ones too."""
        width = self.stretches.seconds or self.stretches.lines
        return range(min(starts), max(starts) + 1, width) if starts else (None,)

    def _place(self, start: int | None) -> str:
        """A stretch, as it stands below its column."""
        if start is None:
            return "all"
        if not self.stretches.seconds:
            return f"{start:,}"
        time = _EPOCH + timedelta(seconds=start)
        if self.stretches.seconds >= _DAY_S:
            return f"{time:%Y-%m-%d}"
        return f"{time:%m-%d %H:%M}" if self.stretches.seconds >= 60 else f"{time:%H:%M:%S}"

    def _axis(self) -> str:
        seconds = self.stretches.seconds
        if not seconds:
            return f"number of the line, by {self.stretches.lines:,}"
        first = self._source.tally.first
        day = f", from {first:%Y-%m-%d}" if first is not None and seconds < _DAY_S else ""
        return f"time, by {_told(seconds)}{day}"


def stretches_of(source: LogFile) -> Stretches:
    """The shortest ones that are few enough for a chart."""
    tally = source.tally
    if tally.first is None or tally.last is None:
        least = max(1, tally.lines // _COLUMNS)
        size = next(each for each in _round_numbers() if each >= least)
        return Stretches(seconds=0, lines=size)
    span = _seconds(tally.last) - _seconds(tally.first)
    return Stretches(seconds=next((each for each in WIDTHS_S if span < each * _COLUMNS), WIDTHS_S[-1]))


def _round_numbers() -> Iterator[int]:
    """1, 2, 5, 10, 20, 50, …"""
    power = 1
    while True:
        yield from (power, 2 * power, 5 * power)
        power *= 10


def _told(seconds: int) -> str:
    for name, size in (("day", _DAY_S), ("hour", 3600), ("minute", 60)):
        if seconds % size == 0:
            count = seconds // size
            return name if count == 1 else f"{count} {name}s"
    return "second" if seconds == 1 else f"{seconds} seconds"


def _seconds(time: datetime) -> int:
    return int((time - _EPOCH).total_seconds())


def _checksum(line: str) -> int:
    """Instead of the line, which may be long."""
    return zlib.crc32(line.encode(errors="replace"))
