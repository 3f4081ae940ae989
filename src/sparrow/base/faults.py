"""What is wrong inside a value that has parts, and where: told all at once, each with the path of its part.

A reader of a plain value raises ValueError with what is allowed. A reader of a value with parts raises `Misfit`, which is a ValueError with one
`Fault` for each part that is wrong. Whoever knows the name and the place of the whole value writes the sentences.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Path = tuple[str | int, ...]
"""From the whole value to a part: names in mappings, indexes in lists."""
_SHOWN = 80
_PLACE = re.compile(r"[^\n]*?:(\d+): ")


class Fault(NamedTuple):
    """`text` follows the name of the part: " cannot be 5; it takes …" or ": there is no …"."""

    path: Path
    text: str

    def under(self, *path: str | int) -> Fault:
        """The same, seen from further outside."""
        return Fault((*path, *self.path), self.text)


class Misfit(ValueError):
    """A value with parts that are wrong."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(f"{dotted(path)}{text}".lstrip(": ") for path, text in faults))
        self.faults = tuple(faults)


def misfit(text: str, *path: str | int) -> Misfit:
    """One thing is wrong, in a sentence of its own."""
    return Misfit([Fault(path, f": {text}")])


def faults_of(error: ValueError, given: object, *, is_secret: bool = False) -> Sequence[Fault]:
    """What a reader said of a value, as faults of that value."""
    if isinstance(error, Misfit):
        return error.faults
    return [Fault((), f" cannot be {shown(given, is_secret=is_secret)}; it takes {error}")]


def dotted(path: Path) -> str:
    """ "queues.emails.topics[0]", for people."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def shown(given: object, *, is_secret: bool = False) -> str:
    """A wrong value in an error."""
    if is_secret:
        return "what it is (not shown)"
    text = repr(given)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def suggestion(word: str, known: Iterable[str]) -> str:
    """ "; did you mean 'x'?" if something known is close."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def by_line(sentences: Iterable[str]) -> list[str]:
    """Sentences about a file ("sparrow.yml:12: …") in the order of its lines, each once; others come first."""
    return sorted(dict.fromkeys(sentences), key=_line_of)


def _line_of(sentence: str) -> int:
    found = _PLACE.match(sentence)
    return int(found[1]) if found else 0
