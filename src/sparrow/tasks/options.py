"""Options of tasks and of sends, as programs write them and as the package uses them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypedDict, get_args

from msgspec import Struct

from sparrow.base.errors import InvalidArgument
from sparrow.base.queue_policy import backoff_after
from sparrow.base.units import parse_duration_ms

Duration = str | int | timedelta
"""Text with a unit ("500ms", "30s", "1h30m"), a timedelta, or a whole number of milliseconds."""

Backoff = Literal["fixed", "linear", "exponential"]
Executor = Literal["auto", "thread", "process"]
Failure = Literal["fail", "ignore"]

_RATE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*/\s*(s|m|min|h|d)\s*")
_PER_S: Final = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
MAX_RETRIES: Final = 249


class SendOptions(TypedDict, total=False):
    """Options of one send. None leaves an option out."""

    delay: Duration | None
    """Earliest start, counted from the send."""
    at: datetime | None
    """Earliest start, a time with a zone."""
    priority: int | None
    """0 to 9; 9 is delivered first. Default: the task's, else 4."""
    key: str | None
    """Key of the message: a queue with order by key runs one job of a key at a time."""
    unique: str | None
    """A second send with the same text within the task's `unique_for` sends nothing, and returns
    the job of the first.
    """
    ttl: Duration | None
    """The job is not started later than this after the send."""
    queue: str | None
    """Another queue than the task's."""


SEND_OPTIONS: Final = frozenset(SendOptions.__annotations__)


class TaskOptions(Struct, frozen=True, kw_only=True):
    """Options of a task; times are in seconds."""

    name: str
    queue: str
    retries: int = 4
    backoff: Backoff = "exponential"
    backoff_delay_s: float = 1.0
    backoff_max_s: float = 600.0
    jitter: float = 0.1
    timeout_s: float | None = None
    hard_timeout_s: float | None = None
    rate_per_s: float | None = None
    executor: Executor = "auto"
    priority: int | None = None
    unique_for_s: float | None = None
    ttl_s: float | None = None
    results: bool = False
    reject_on: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.retries <= MAX_RETRIES:
            raise InvalidArgument(
                f"retries of the task {self.name!r} is {self.retries}; it must be from 0 to {MAX_RETRIES}"
            )
        if self.executor not in get_args(Executor):
            raise InvalidArgument(
                f"executor of the task {self.name!r} is {self.executor!r}; it must be one of "
                f"{', '.join(map(repr, get_args(Executor)))}"
            )
        if self.backoff not in get_args(Backoff):
            raise InvalidArgument(
                f"backoff of the task {self.name!r} is {self.backoff!r}; it must be one of "
                f"{', '.join(map(repr, get_args(Backoff)))}"
            )
        for name in ("timeout_s", "hard_timeout_s", "ttl_s", "unique_for_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InvalidArgument(
                    f"{name.removesuffix('_s')} of the task {self.name!r} is {value} s; it must be above 0"
                )
        if not 0 <= self.jitter <= 1:
            raise InvalidArgument(
                f"jitter of the task {self.name!r} is {self.jitter}; it must be from 0 to 1"
            )
        if (
            self.timeout_s is not None
            and self.hard_timeout_s is not None
            and self.hard_timeout_s < self.timeout_s
        ):
            raise InvalidArgument(
                f"hard_timeout of the task {self.name!r} is {self.hard_timeout_s:g} s, less than its timeout "
                f"of {self.timeout_s:g} s; the timeout cancels, and the hard one kills what does not end"
            )

    @property
    def attempts(self) -> int:
        """Number of times that a job is run at most."""
        return self.retries + 1

    def delay_after(self, deliveries: int, jitter: float) -> float:
        """Return the seconds before the next attempt.

        Args:
            jitter: a random number from -1 to 1.
        """
        delay_ms = backoff_after(
            self.backoff, round(self.backoff_delay_s * 1000), round(self.backoff_max_s * 1000), deliveries
        )
        return max(0.0, delay_ms / 1000 * (1 + self.jitter * jitter))


def seconds(name: str, duration: Duration | None) -> float | None:
    """Return a duration in seconds; None for None.

    Raises:
        InvalidArgument: no duration, or a negative one; the error names the argument.
    """
    if duration is None:
        return None
    if isinstance(duration, timedelta):
        found = duration.total_seconds()
    elif isinstance(duration, str):
        try:
            found = parse_duration_ms(duration) / 1000
        except ValueError as error:
            raise InvalidArgument(f"{name} is {duration!r}; it must be {error}") from None
    elif type(duration) is int:
        found = duration / 1000
    else:
        raise InvalidArgument(
            f'{name} is {duration!r}; it must be a duration such as "500ms" or "30s", a timedelta, or whole '
            "milliseconds"
        )
    if found < 0:
        raise InvalidArgument(f"{name} is {duration!r}; it must not be negative")
    return found


def rate_per_s(name: str, rate: str | float | None) -> float | None:
    """Return a rate such as "100/s", "30/m" or 100 (per second) as a number per second.

    Raises:
        InvalidArgument: no rate.
    """
    if rate is None:
        return None
    found: float | None = None
    if isinstance(rate, str):
        match = _RATE.fullmatch(rate)
        if match is not None:
            found = float(match[1]) / _PER_S[match[2]]
    elif type(rate) in (int, float):
        found = float(rate)
    if found is None or not 0 < found < 1e9:
        raise InvalidArgument(f'{name} is {rate!r}; it must be a rate such as "100/s", "30/m" or "500/h"')
    return found


def optional(**given: Any) -> dict[str, Any]:
    """Return the arguments that are not None."""
    return {name: value for name, value in given.items() if value is not None}
