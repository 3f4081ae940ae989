"""Faults inside a value that has parts: reported all at once, each with the path of its part.

A reader of a plain value raises ValueError with what is allowed. A reader of a value with parts
raises `Misfit`, which is a ValueError with one `Fault` for each part that is wrong. The caller that
knows the name and the location of the whole value writes the sentences.
"""

from __future__ import annotations

import difflib
import re
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Path = tuple[str | int, ...]
"""From the whole value to a part: names in mappings, indexes in lists."""
_SHOWN = 80
_LOCATION = re.compile(r"[^\n]*?:(\d+): ")


class Fault(NamedTuple):
    """A wrong part. `text` follows the name of the part: " cannot be 5; it takes …" or ": there is
    no …".
    """

    path: Path
    text: str

    def under(self, *path: str | int) -> Fault:
        """Return the same fault with a path from further outside."""
        return Fault((*path, *self.path), self.text)


class Nothing(Enum):
    """The type of `NOTHING`, which is no value at all (None may be one)."""

    NOTHING = "nothing"


NOTHING: Final = Nothing.NOTHING


class Misfit(ValueError):
    """A value with wrong parts.

    `rest` is the value made of the other parts, so that they can be judged, too; `NOTHING` if none
    can be made.
    """

    def __init__(self, faults: Sequence[Fault], rest: object = NOTHING) -> None:
        super().__init__("; ".join(f"{dotted(path)}{text}".lstrip(": ") for path, text in faults))
        self.faults = tuple(faults)
        self.rest = rest


def misfit(text: str, *path: str | int) -> Misfit:
    """Return a `Misfit` with one fault, a sentence of its own."""
    return Misfit([Fault(path, f": {text}")])


def faults_of(error: ValueError, given: object, *, is_secret: bool = False) -> Sequence[Fault]:
    """Return a reader's error of a value as faults of that value."""
    if isinstance(error, Misfit):
        return error.faults
    return [Fault((), f" cannot be {shown(given, is_secret=is_secret)}; it takes {error}")]


def dotted(path: Path) -> str:
    """Return a path for people: "queues.emails.topics[0]"."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def shown(given: object, *, is_secret: bool = False) -> str:
    """Return a wrong value in its form in an error."""
    if is_secret:
        return "what it is (not shown)"
    text = repr(given)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like a word; None if nothing is close."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return close[0] if close else None


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" if a known name is close, else ""."""
    close = closest(word, known)
    return "" if close is None else f"; did you mean {close!r}?"


def by_line(sentences: Iterable[str]) -> list[str]:
    """Return sentences about a file ("sparrow.yml:12: …") in the order of its lines, each once;
    others come first.
    """
    return sorted(dict.fromkeys(sentences), key=_line_of)


def _line_of(sentence: str) -> int:
    found = _LOCATION.match(sentence)
    return int(found[1]) if found else 0
