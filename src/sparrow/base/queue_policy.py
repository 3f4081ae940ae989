"""The settings of a queue's policy: one table of names, words, units, limits and defaults, and the
parser for all sources of policies.

The configuration file, Python (`policy=`), HTTP, the native protocol and the command line read
policies by `read_settings`, so a setting has one word and one meaning everywhere. Each setting has
a `word` ("lease"), which people write, and a `name` ("lease_ms"), which has the unit: policies are
stored, sent and shown by name. Both are understood wherever a policy is read.

A duration is a text with a unit ("30s"), a `timedelta`, or a whole number of milliseconds.

    >>> read_settings({"lease": "30s", "delivery_limit": 3})
    {'lease_ms': 30000, 'delivery_limit': 3}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sparrow.base.errors import InvalidConfig
from sparrow.base.faults import shown, suggestion
from sparrow.base.units import format_duration, parse_duration_ms

ORDERS: Final = ("none", "key", "parented")
BACKOFFS: Final = ("fixed", "linear", "exponential")
PARENT_FAILED: Final = ("follow", "release")
AT_CORRUPT: Final = ("fail", "skip")
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

Check = Callable[[str, object], Any]
"""A function that returns the value of a setting as it is stored. The text is the setting's name in
the caller's terms, for errors. Raises InvalidConfig.
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a policy."""

    name: str
    """Name in stored policies and on the wire; a duration's ends in `_ms`."""
    word: str
    """The word that people write: a key of the file, of Python's `policy=` and of HTTP, and the
    option `--word` of the command line.
    """
    default: object
    check: Check
    choices: tuple[str, ...] = ()
    """All values, if they are few."""

    @property
    def is_duration(self) -> bool:
        """True if the value is a number of milliseconds."""
        return self.name.endswith("_ms")

    def show(self, value: object) -> str:
        """Return a value as people write it: "30s", "none", "a, b"."""
        if self.is_duration and isinstance(value, int):
            return format_duration(value)
        if self.name == "dead_letter_topic":
            return "none" if value is None else str(value) or "default"
        if isinstance(value, list | tuple):
            return ", ".join(map(str, value)) or "none"
        return str(value)


# ── values ────────────────────────────────────────────────────────────────────────────────────────


def _duration(low_ms: int, high_ms: int) -> Check:
    allowed = (
        f'a duration from {format_duration(low_ms)} to {format_duration(high_ms)}, such as "90s" or "1h30m"'
        " (a bare number is milliseconds)"
    )

    def check(word: str, value: object) -> int:
        duration_ms = _milliseconds(value)
        if duration_ms is None or not low_ms <= duration_ms <= high_ms:
            raise InvalidConfig(f"{word} is {_text(value)}; it is {allowed}")
        return duration_ms

    return check


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


def _integer(low: int, high: int) -> Check:
    def check(word: str, value: object) -> int:
        number = _number(value)
        if number is None or not low <= number <= high:
            raise InvalidConfig(f"{word} is {_text(value)}; it is a whole number from {low} to {high}")
        return number

    return check


def _number(value: object) -> int | None:
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) < 20:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _one_of(choices: Sequence[str]) -> Check:
    def check(word: str, value: object) -> str:
        if value not in choices:
            close = suggestion(value, choices) if isinstance(value, str) else ""
            raise InvalidConfig(f"{word} is {_text(value)}; it is one of {', '.join(choices)}{close}")
        return str(value)

    return check


def _share(word: str, value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if not 0 <= number <= 1:
        raise InvalidConfig(f"{word} is {_text(value)}; it is a number from 0 to 1")
    return number


def _topic(word: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise InvalidConfig(
            f'{word} is {_text(value)}; it is the name of a topic, "" for the default, or null '
            "(None) for none"
        )
    return value


def _start(word: str, value: object) -> str:
    found = value
    if isinstance(value, Mapping) and list(value) == ["timestamp"]:
        found = f"{TIMESTAMP_PREFIX}{value['timestamp']}"
    # a datetime, as Python has and YAML makes
    elif callable(timestamp := getattr(value, "timestamp", None)):
        found = f"{TIMESTAMP_PREFIX}{round(timestamp() * 1000)}"
    if found in (BEGINNING, END):
        return str(found)
    if isinstance(found, str) and found.startswith(TIMESTAMP_PREFIX):
        at = found.removeprefix(TIMESTAMP_PREFIX)
        if at.isdecimal() and int(at) < 1 << 62:
            return found
    raise InvalidConfig(
        f"{word} is {_text(value)}; it is {BEGINNING!r}, {END!r} or '{TIMESTAMP_PREFIX}<ms since the epoch>'"
    )


def _subscribers(word: str, value: object) -> list[str]:
    if not isinstance(value, list | tuple) or not all(_is_subscriber(each) for each in value):
        raise InvalidConfig(
            f"{word} is {_text(value)}; it is a list of names of 1 to {_MAX_NAME} printable "
            "characters without '/'"
        )
    if len(set(value)) < len(value):
        raise InvalidConfig(f"{word} names a subscriber twice: {_text(value)}")
    if len(value) > _MAX_SUBSCRIBERS:
        raise InvalidConfig(f"{word} has {len(value)} names; there may be {_MAX_SUBSCRIBERS}")
    return list(value)


def _is_subscriber(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= _MAX_NAME and name.isprintable() and "/" not in name


def _text(value: object) -> str:
    return shown(value)


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


# ── the table ─────────────────────────────────────────────────────────────────────────────────────


def _few(name: str, default: str, choices: tuple[str, ...]) -> Setting:
    return Setting(name, name, default, _one_of(choices), choices)


SETTINGS: Final[Mapping[str, Setting]] = {
    each.name: each
    for each in (
        Setting("lease_ms", "lease", 30_000, _duration(100, 43_200_000)),
        Setting("delivery_limit", "delivery_limit", 5, _integer(0, MAX_DELIVERY_LIMIT)),
        _few("backoff", "fixed", BACKOFFS),
        Setting("backoff_ms", "backoff_delay", 0, _duration(0, _DAY_MS)),
        Setting("backoff_max_ms", "backoff_max", 600_000, _duration(0, 30 * _DAY_MS)),
        Setting("backoff_jitter", "jitter", 0.0, _share),
        Setting("prefetch", "prefetch", 0, _integer(0, 1_000_000)),
        Setting("max_leased", "max_leased", 100_000, _integer(1, 10_000_000)),
        _few("order", "none", ORDERS),
        Setting("expiry_ms", "expiry", 0, _duration(0, 100 * _YEAR_MS)),
        Setting("dead_letter_topic", "dead_letter_topic", "", _topic),
        Setting("start", "start", BEGINNING, _start),
        Setting("parent_wait_ms", "parent_wait", 600_000, _duration(0, _YEAR_MS)),
        _few("parent_failed", "follow", PARENT_FAILED),
        Setting("subscribers", "subscribers", (), _subscribers),
        _few("on_corrupt", "skip", AT_CORRUPT),
        _few("isolation", "read_committed", ISOLATIONS),
    )
}
"""All settings by name. `docs/queues.md` describes each."""
WORDS: Final[Mapping[str, Setting]] = {each.word: each for each in SETTINGS.values()}
"""All settings by the word that people write."""


def find(key: str) -> Setting | None:
    """Return the setting of a word or a name, or None."""
    return WORDS.get(key) or SETTINGS.get(key)


def known(key: str) -> Setting:
    """Return the setting of a word or a name.

    Raises:
        InvalidConfig: there is none; names a close one, or all.
    """
    setting = find(key)
    if setting is None:
        raise InvalidConfig(_unknown(key))
    return setting


def _unknown(key: str) -> str:
    close = suggestion(key, [*WORDS, *SETTINGS])
    return f"a queue has no setting {key!r}{close or '; there are ' + ', '.join(WORDS)}"


def read_settings(given: object) -> dict[str, Any]:
    """Return checked settings by name, durations in milliseconds.

    Args:
        given: a mapping of settings by word or name.

    Raises:
        InvalidConfig: names every setting that does not exist, has a wrong value, or is given
            twice.
    """
    if not isinstance(given, Mapping):
        raise InvalidConfig(f"a policy is a mapping of settings, not {shown(given)}")
    values: dict[str, Any] = {}
    keys: dict[str, str] = {}
    faults: list[str] = []
    for key, value in given.items():
        setting = find(key)
        if setting is None:
            faults.append(_unknown(key))
        elif setting.name in keys:
            faults.append(f"{keys[setting.name]!r} and {key!r} are one setting; give it once")
        else:
            keys[setting.name] = key
            try:
                values[setting.name] = setting.check(key, value)
            except InvalidConfig as error:
                faults.append(error.text)
    if faults:
        raise InvalidConfig("; ".join(faults))
    return values


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
