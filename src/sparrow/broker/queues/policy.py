"""How a queue behaves: one frozen object, made of settings by name.

The settings are declared once, here: their names, types, limits and defaults are what the native verb `queue.create`, the client and
the command line take, and what `docs/queues.md` lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from sparrow.base.errors import InvalidConfig

ORDERS: Final = ("none", "key", "parented")
BACKOFFS: Final = ("fixed", "linear", "exponential")
PARENT_FAILED: Final = ("follow", "release")
BEGINNING: Final = "beginning"
END: Final = "end"
TIMESTAMP_PREFIX: Final = "timestamp:"
MAX_DELIVERY_LIMIT: Final = 250
"""A delivery count takes eight bits of a record's state."""
UNLIMITED_COUNT: Final = 255
"""Where there is no limit the count stops here."""
_DAY_MS: Final = 86_400_000
_YEAR_MS: Final = 366 * _DAY_MS


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """Times in milliseconds. See `docs/queues.md` for what each setting does."""

    lease_ms: int = 30_000
    delivery_limit: int = 5
    """The delivery that is the last: if it is not acknowledged the record goes to the dead letters. 0: no limit."""
    backoff: str = "fixed"
    backoff_ms: int = 0
    backoff_max_ms: int = 600_000
    backoff_jitter: float = 0.0
    prefetch: int = 0
    max_leased: int = 100_000
    order: str = "none"
    expiry_ms: int = 0
    dead_letter_topic: str | None = ""
    """ "": `<queue>.dead`. None: what cannot be handled is dropped."""
    start: str = BEGINNING
    parent_wait_ms: int = 600_000
    parent_failed: str = "follow"
    subscribers: tuple[str, ...] = ()
    isolation: str = "read_committed"
    """Of share groups, which Kafka lets read records of open transactions."""

    def backoff_after(self, deliveries: int, jitter: float) -> int:
        """How long a record waits that came back after so many deliveries.

        Args:
            jitter: a random number from -1 to 1.
        """
        if not self.backoff_ms:
            return 0
        factor = 1
        if self.backoff == "linear":
            factor = deliveries
        elif self.backoff == "exponential":
            factor = 1 << min(deliveries - 1, 40)
        delay = min(self.backoff_ms * factor, self.backoff_max_ms)
        return max(0, round(delay * (1 + self.backoff_jitter * jitter)))

    def dead_letters_of(self, queue: str) -> str | None:
        """The dead-letter topic of a queue of this name; None: there is none."""
        return f"{queue}.dead" if self.dead_letter_topic == "" else self.dead_letter_topic

    def settings(self) -> dict[str, object]:
        """All settings by name, as `changed` takes them."""
        values: dict[str, object] = {field.name: getattr(self, field.name) for field in fields(self)}
        values["subscribers"] = list(self.subscribers)
        return values

    def changed(self, settings: Mapping[str, object], unset: Sequence[str] = ()) -> QueuePolicy:
        """This policy with other settings; those named by `unset` get their defaults.

        Raises:
            InvalidConfig: no such setting, or a value that it does not take; says which there are.
        """
        values = {name: _DEFAULTS[_known(name)] for name in unset}
        values |= {name: _CHECKS[_known(name)](name, value) for name, value in settings.items()}
        return replace(self, **values)


Check = Callable[[str, object], Any]


def _integer(low: int, high: int, unit: str = "") -> Check:
    def check(name: str, value: object) -> int:
        number = _number(value)
        if number is None or not low <= number <= high:
            raise InvalidConfig(f"{name} is {value!r}; it is a whole number from {low} to {high}{unit}")
        return number

    return check


def _number(value: object) -> int | None:
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) < 20:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _choice(choices: Sequence[str]) -> Check:
    def check(name: str, value: object) -> str:
        if value not in choices:
            raise InvalidConfig(f"{name} is {value!r}; it is one of {', '.join(choices)}")
        return str(value)

    return check


def _jitter(name: str, value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if not 0 <= number <= 1:
        raise InvalidConfig(f"{name} is {value!r}; it is a number from 0 to 1")
    return number


def _topic(name: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise InvalidConfig(
            f'{name} is {value!r}; it is the name of a topic, "" for the default, or null for none'
        )
    return value


def _start(name: str, value: object) -> str:
    if isinstance(value, Mapping) and list(value) == ["timestamp"]:
        value = f"{TIMESTAMP_PREFIX}{value['timestamp']}"
    if value in (BEGINNING, END):
        return str(value)
    if isinstance(value, str) and value.startswith(TIMESTAMP_PREFIX):
        at = value.removeprefix(TIMESTAMP_PREFIX)
        if at.isdecimal() and int(at) < 1 << 62:
            return value
    raise InvalidConfig(
        f"{name} is {value!r}; it is {BEGINNING!r}, {END!r} or '{TIMESTAMP_PREFIX}<ms since the epoch>'"
    )


_MAX_SUBSCRIBERS: Final = 100
_MAX_NAME: Final = 200


def _subscribers(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(_is_subscriber(each) for each in value):
        raise InvalidConfig(
            f"{name} is {value!r}; it is a list of names of 1 to {_MAX_NAME} printable characters without '/'"
        )
    if len(set(value)) < len(value):
        raise InvalidConfig(f"{name} names a subscriber twice: {value!r}")
    if len(value) > _MAX_SUBSCRIBERS:
        raise InvalidConfig(f"{name} has {len(value)} names; there may be {_MAX_SUBSCRIBERS}")
    return tuple(value)


def _is_subscriber(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= _MAX_NAME and name.isprintable() and "/" not in name


_CHECKS: Final[dict[str, Check]] = {
    "lease_ms": _integer(100, 43_200_000, " milliseconds"),
    "delivery_limit": _integer(0, MAX_DELIVERY_LIMIT),
    "backoff": _choice(BACKOFFS),
    "backoff_ms": _integer(0, _DAY_MS, " milliseconds"),
    "backoff_max_ms": _integer(0, 30 * _DAY_MS, " milliseconds"),
    "backoff_jitter": _jitter,
    "prefetch": _integer(0, 1_000_000),
    "max_leased": _integer(1, 10_000_000),
    "order": _choice(ORDERS),
    "expiry_ms": _integer(0, 100 * _YEAR_MS, " milliseconds"),
    "dead_letter_topic": _topic,
    "start": _start,
    "parent_wait_ms": _integer(0, _YEAR_MS, " milliseconds"),
    "parent_failed": _choice(PARENT_FAILED),
    "subscribers": _subscribers,
    "isolation": _choice(("read_committed", "read_uncommitted")),
}
_DEFAULTS: Final[dict[str, Any]] = {name: getattr(QueuePolicy(), name) for name in _CHECKS}
SETTINGS: Final = tuple(_CHECKS)
"""The names of all settings."""


def _known(name: str) -> str:
    if name not in _CHECKS:
        raise InvalidConfig(f"a queue has no setting {name!r}; there are {', '.join(_CHECKS)}")
    return name
