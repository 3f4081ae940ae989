"""Sizes and durations as people write them: "64 MiB", "7d", "1h30m", "500ms".

A bare number is in the unit of its context (bytes, milliseconds), so that machines may write plain
integers. kB, MB, GB, TB are powers of 1000; KiB, MiB, GiB, TiB and the short K, M, G, T are powers
of 1024.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SIZE = re.compile(r"\s*(\d{1,30}(?:\.\d{1,30})?)\s*([a-zA-Z]*)\s*")
_DURATION = re.compile(r"(\d{1,30}(?:\.\d{1,30})?)\s*([a-z]+)\s*")

_BYTES_PER: dict[str, int] = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
    **{letter: 1024**power for power, letter in enumerate("kmgt", 1)},
}
_MS_PER = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def parse_size_bytes(text: str) -> int:
    """Return the bytes of a size such as "64 MiB", "1.5GB" or "1048576".

    Raises:
        ValueError: says what is allowed.
    """
    found = _SIZE.fullmatch(text)
    factor = _BYTES_PER.get(found[2].lower()) if found else None
    if found is None or factor is None:
        raise ValueError('a size such as 1048576, "64 MiB" or "1.5 GB"')
    return round(float(found[1]) * factor) if "." in found[1] else int(found[1]) * factor


def parse_duration_ms(text: str) -> int:
    """Return the milliseconds of a duration such as "500ms", "90s", "1h30m", "7d" or "30000" (ms).

    Raises:
        ValueError: says what is allowed.
    """
    stripped = text.strip().lower()
    if stripped.isdecimal() and len(stripped) <= 30:
        return int(stripped)
    parts = _DURATION.findall(stripped)
    if not parts or _DURATION.sub("", stripped) or any(unit not in _MS_PER for _, unit in parts):
        raise ValueError('a duration such as "500ms", "90s", "1h30m" or "7d" (a bare number is milliseconds)')
    return round(sum(float(number) * _MS_PER[unit] for number, unit in parts))


def format_size(size_bytes: int) -> str:
    """Return a size for people: "64.0 MiB"."""
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{size_bytes} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def exact_size(size_bytes: int) -> str:
    """Return a size for people, and exactly, as `parse_size_bytes` reads it: "64 MiB", "1000"."""
    power = 0
    while power < 4 and size_bytes and size_bytes % 1024 == 0:
        size_bytes //= 1024
        power += 1
    return f"{size_bytes} {('', 'KiB', 'MiB', 'GiB', 'TiB')[power]}".rstrip()


_UNITS_MS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))


def format_duration(duration_ms: int) -> str:
    """Return a duration for people, and exactly, as `parse_duration_ms` reads it: "1h30m",
    "2s500ms", "0s".
    """
    parts = []
    for unit, unit_ms in _UNITS_MS:
        number, duration_ms = divmod(duration_ms, unit_ms)
        if number:
            parts.append(f"{number}{unit}")
    if duration_ms:
        parts.append(f"{duration_ms}ms")
    return "".join(parts) or "0s"


_PARSERS: dict[str, Callable[[str], int]] = {".ms": parse_duration_ms, ".bytes": parse_size_bytes}
_NUMBER = re.compile(r"\s*-?\d+\s*")


def plain_topic_config(values: Mapping[str, str]) -> dict[str, str]:
    """Return a topic configuration as Kafka writes it: in values of names that end in `.ms` and
    `.bytes`, units become numbers.

    The broker judges names, bounds, and values that only look like a number.

    Raises:
        ValueError: a value that is neither a number nor a duration or size; says what is allowed.
    """
    return {name: _plain(name, value) for name, value in values.items()}


def _plain(name: str, value: str) -> str:
    parse = next((parse for end, parse in _PARSERS.items() if name.endswith(end)), None)
    if parse is None or _NUMBER.fullmatch(value):
        return value
    try:
        return str(parse(value))
    except ValueError as error:
        raise ValueError(f"{error} for {name}, not {value!r}") from None


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 topic", "3 topics"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
