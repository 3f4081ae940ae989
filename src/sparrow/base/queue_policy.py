"""The policy of a queue: one frozen object, whose fields declare name, word, unit, range, default
and help of each setting.

The configuration file, Python (`policy=`), HTTP, the native protocol and the command line read
policies by `read_settings`, so a setting has one word and one meaning everywhere; see
`base/named_settings.py`.

A duration is a text with a unit ("30s"), a `timedelta`, or a whole number of milliseconds.

    >>> read_settings({"lease": "30s", "delivery_limit": 3})
    {'lease_ms': 30000, 'delivery_limit': 3}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from sparrow.base.errors import InvalidConfig
from sparrow.base.faults import Fault, Misfit, shown
from sparrow.base.named_settings import SettingTable, setting
from sparrow.base.settings import Kind, choice, decimal, integer
from sparrow.base.units import format_duration, parse_duration_ms

ORDERS: Final = ("none", "key", "parented")
BACKOFFS: Final = ("fixed", "linear", "exponential")
PARENT_FAILED: Final = ("follow", "release")
AT_CORRUPT: Final = ("fail", "skip")
LEASE_DURABILITIES: Final = ("synced", "buffered")
ISOLATIONS: Final = ("read_committed", "read_uncommitted")
BEGINNING: Final = "beginning"
END: Final = "end"
TIMESTAMP_PREFIX: Final = "timestamp:"
MAX_DELIVERY_LIMIT: Final = 250
"""A delivery count takes eight bits of a record's state."""
_DAY_MS: Final = 86_400_000
_YEAR_MS: Final = 366 * _DAY_MS
_MAX_SUBSCRIBERS: Final = 100
_MAX_NAME: Final = 200


# ── values ────────────────────────────────────────────────────────────────────────────────────────


def _duration(low_ms: int, high_ms: int) -> Kind[int]:
    allowed = (
        f'a duration from {format_duration(low_ms)} to {format_duration(high_ms)}, such as "90s" or "1h30m"'
        " (a bare number is milliseconds)"
    )

    def read(given: object) -> int:
        duration_ms = _milliseconds(given)
        if duration_ms is None or not low_ms <= duration_ms <= high_ms:
            raise ValueError(allowed)
        return duration_ms

    return Kind("duration", read, show=_show_duration)


def _milliseconds(value: object) -> int | None:
    if isinstance(value, str):
        try:
            return parse_duration_ms(value)
        except (ValueError, OverflowError):
            return None
    # a timedelta; to import its module is not allowed here
    seconds = getattr(value, "total_seconds", None)
    if callable(seconds):
        return round(float(seconds()) * 1000)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _show_duration(value: object) -> str:
    return format_duration(value) if isinstance(value, int) else str(value)


def _read_topic(given: object) -> str | None:
    if given is not None and not isinstance(given, str):
        raise ValueError('the name of a topic, "" for the default, or null (None) for none')
    return given


def _read_start(given: object) -> str:
    found = given
    if isinstance(given, Mapping) and list(given) == ["timestamp"]:
        found = f"{TIMESTAMP_PREFIX}{given['timestamp']}"
    # a datetime, as Python has and YAML makes
    elif callable(timestamp := getattr(given, "timestamp", None)):
        found = f"{TIMESTAMP_PREFIX}{round(timestamp() * 1000)}"
    if found in (BEGINNING, END):
        return str(found)
    if isinstance(found, str) and found.startswith(TIMESTAMP_PREFIX):
        at = found.removeprefix(TIMESTAMP_PREFIX)
        if at.isdecimal() and int(at) < 1 << 62:
            return found
    raise ValueError(f"{BEGINNING!r}, {END!r} or '{TIMESTAMP_PREFIX}<ms since the epoch>'")


def _read_subscribers(given: object) -> list[str]:
    if not isinstance(given, list | tuple) or not all(_is_subscriber(each) for each in given):
        raise ValueError(f"a list of names of 1 to {_MAX_NAME} printable characters without '/'")
    if len(set(given)) < len(given):
        raise Misfit([Fault((), f" names a subscriber twice: {shown(given)}")])
    if len(given) > _MAX_SUBSCRIBERS:
        raise Misfit([Fault((), f" has {len(given)} names; there may be {_MAX_SUBSCRIBERS}")])
    return list(given)


def _is_subscriber(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= _MAX_NAME and name.isprintable() and "/" not in name


_TOPIC: Final = Kind("topic", _read_topic, show=lambda value: "none" if value is None else value or "default")
_SUBSCRIBERS: Final = Kind("names", _read_subscribers, show=lambda value: ", ".join(value) or "none")


# ── the policy ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """Settings of a queue. Times are in milliseconds. See `docs/queues.md` for what each setting
    does.
    """

    lease_ms: int = setting(
        _duration(100, 43_200_000),
        30_000,
        word="lease",
        help="Time that a consumer has for a record before others get it.",
    )
    delivery_limit: int = setting(
        integer(0, MAX_DELIVERY_LIMIT),
        5,
        help="Deliveries before a record goes to the dead letters; 0: no limit.",
    )
    """Number of the last delivery: a record that is not acknowledged then goes to the dead letters.
    0: no limit.
    """
    backoff: str = setting(
        choice(*BACKOFFS),
        "fixed",
        help="Growth of the delay before another delivery: fixed, linear, exponential.",
        metavar="KIND",
    )
    backoff_ms: int = setting(
        _duration(0, _DAY_MS), 0, word="backoff_delay", help="The delay after the first delivery."
    )
    backoff_max_ms: int = setting(
        _duration(0, 30 * _DAY_MS), 600_000, word="backoff_max", help="The longest delay."
    )
    backoff_jitter: float = setting(
        decimal(0, 1),
        0.0,
        word="jitter",
        help="Vary delays by up to this share, 0 to 1. [0]",
        metavar="SHARE",
    )
    prefetch: int = setting(
        integer(0, 1_000_000), 0, help="Records that one consumer may hold leased; 0: no limit."
    )
    max_leased: int = setting(
        integer(1, 10_000_000), 100_000, help="Records that all consumers may hold leased."
    )
    rate: float = setting(
        decimal(0, 1_000_000),
        0.0,
        help="Deliveries per second at most, over all consumers; 0: no limit.",
        metavar="RATE",
    )
    order: str = setting(
        choice(*ORDERS),
        "none",
        help="none, key (one record of a key at a time), or parented.",
        metavar="ORDER",
    )
    expiry_ms: int = setting(
        _duration(0, 100 * _YEAR_MS),
        0,
        word="expiry",
        help="Age at which a record that nobody took expires; 0: never.",
    )
    dead_letter_topic: str | None = setting(
        _TOPIC, "", help="Where records go that cannot be handled. [QUEUE.dead]", metavar="TOPIC"
    )
    """ "": `<queue>.dead`. None: what cannot be handled is dropped."""
    start: str = setting(
        Kind("start", _read_start, show=str),
        BEGINNING,
        help="beginning, end, or a time: the first record of the queue.",
        metavar="WHERE",
    )
    parent_wait_ms: int = setting(
        _duration(0, _YEAR_MS),
        600_000,
        word="parent_wait",
        help="Time that a record waits for a parent that never came.",
    )
    parent_failed: str = setting(
        choice(*PARENT_FAILED),
        "follow",
        help="follow the failed parent into the dead letters, or release.",
        metavar="WHAT",
    )
    subscribers: tuple[str, ...] = setting(_SUBSCRIBERS, ())
    on_corrupt: str = setting(
        choice(*AT_CORRUPT),
        "skip",
        help="At a batch that nobody can read: skip (its records are dead letters), or fail (the queue "
        "stops).",
        metavar="WHAT",
    )
    lease_durability: str = setting(
        choice(*LEASE_DURABILITIES),
        "synced",
        help="Deliver when the lease is on stable storage (synced), or at once (buffered): a crash may "
        "then forget it.",
        metavar="WHEN",
    )
    isolation: str = setting(choice(*ISOLATIONS), "read_committed")
    """Used by share groups, which Kafka lets read records of open transactions."""

    def backoff_after(self, deliveries: int, jitter: float) -> int:
        """Return the delay of a record that came back after this many deliveries.

        Args:
            jitter: a random number from -1 to 1.
        """
        delay = backoff_after(self.backoff, self.backoff_ms, self.backoff_max_ms, deliveries)
        return max(0, round(delay * (1 + self.backoff_jitter * jitter)))

    def dead_letters_of(self, queue: str) -> str | None:
        """Return the dead-letter topic of a queue of this name, or None."""
        return f"{queue}.dead" if self.dead_letter_topic == "" else self.dead_letter_topic

    def settings(self) -> dict[str, object]:
        """Return all settings by name, as `changed` takes them."""
        values: dict[str, object] = {field.name: getattr(self, field.name) for field in fields(self)}
        values["subscribers"] = list(self.subscribers)
        return values

    def changed(self, settings: Mapping[str, object], unset: Sequence[str] = ()) -> QueuePolicy:
        """Return this policy with other settings, by word or name; those named by `unset` get their
        defaults.

        Raises:
            InvalidConfig: no such setting, or a value that it does not take; names all that is
                wrong.
        """
        values: dict[str, Any] = {name: SETTINGS[name].default for name in names_of(unset)}
        values |= read_settings(settings)
        if "subscribers" in values:
            values["subscribers"] = tuple(values["subscribers"])
        return replace(self, **values)


def backoff_after(kind: str, first_ms: int, max_ms: int, deliveries: int) -> int:
    """Return how long a record that came back after `deliveries` deliveries waits, in ms, before
    its jitter.
    """
    if not first_ms:
        return 0
    factor = 1
    if kind == "linear":
        factor = deliveries
    elif kind == "exponential":
        factor = 1 << min(deliveries - 1, 40)
    return min(first_ms * factor, max_ms)


# ── settings by word or name ──────────────────────────────────────────────────────────────────────

_TABLE: Final = SettingTable("a queue", QueuePolicy)
SETTINGS: Final = _TABLE.by_name
"""All settings by name. `docs/queues.md` describes each."""
WORDS: Final = _TABLE.by_word
"""All settings by the word that people write."""
find = _TABLE.find
known = _TABLE.known


def read_settings(given: object) -> dict[str, Any]:
    """Return checked settings by name; see `SettingTable.read`.

    Raises:
        InvalidConfig: names every setting that does not exist, has a wrong value, or is given
            twice.
    """
    if not isinstance(given, Mapping):
        raise InvalidConfig(f"a policy is a mapping of settings, not {shown(given)}")
    return _TABLE.read(given)


def differences(there: Mapping[str, object], wanted: Mapping[str, object]) -> list[str]:
    """Return a sentence for each setting whose values differ: "lease is 30s, not 1m".

    Args:
        there, wanted: values by name, as `read_settings` returns them; only names that `wanted` has
            are compared.
    """
    differing = [SETTINGS[name] for name, value in wanted.items() if there[name] != value]
    return [
        f"{each.word} is {each.show(there[each.name])}, not {each.show(wanted[each.name])}"
        for each in differing
    ]


def names_of(keys: Sequence[str]) -> list[str]:
    """Return the names of settings that are given by word or name. Raise InvalidConfig for unknown
    ones.
    """
    return [known(key).name for key in keys]


def changes_to(policy: QueuePolicy, asked: Mapping[str, object]) -> dict[str, object]:
    """Return those of the settings `asked` for, by word or name, that differ from a policy; by
    name.

    Subscribers that are not asked for stay: other processes may have added them.

    Raises:
        InvalidConfig: no such setting, or a value that it does not take.
    """
    before = policy.settings()
    changes = {name: value for name, value in read_settings(asked).items() if value != before[name]}
    if "subscribers" in changes:
        missing = [each for each in changes.pop("subscribers") if each not in policy.subscribers]
        if missing:
            changes["subscribers"] = [*policy.subscribers, *missing]
    return changes
