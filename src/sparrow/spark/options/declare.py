"""Options of a data source: each is declared once; names, defaults, errors and the table in the
documentation follow.

Spark hands over text by name, in any case. Names are compared without case and underscores, so
`startingOffsets`, `startingoffsets` and `starting_offsets` are one. Every unknown name, every wrong
value and every conflict is reported in one error, because each try costs the user the start of a
Spark job.

Tuning of Kafka clients has no meaning here; such names are left out with a warning instead of an
error, so that a job moves by changing its format alone. A name that is likely but wrong has advice
instead of a suggestion.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparrow.base.errors import InvalidArgument
from sparrow.base.faults import closest, faults_of, suggestion

if TYPE_CHECKING:
    from sparrow.base.settings import Kind

Rule = Callable[["Values"], Iterable[str]]
"""Returns faults of values that are valid one by one, as sentences; empty without faults."""

_log = logging.getLogger("sparrow.spark")
_warned: set[str] = set()
"""Warnings that were written; at most as many as there are ignored names."""
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "outputmode"})
"""Names that Spark itself reads out of the same mapping."""


@dataclass(frozen=True, slots=True)
class DataSourceOption:
    """One declared option.

    Args:
        name: as the documentation writes it, and the key of its value.
        kind: reads a text, or raises ValueError with what is allowed.
        default: the value where nothing is given; it is not read by `kind`.
        help: for the documentation.
        aliases: other names of the same thing.
        check: judges a value that was read; raises ValueError with what is allowed.
        is_secret: the value never appears in an error.
        show: how the default is written for people; None: as the kind shows it, or nothing.
    """

    name: str
    kind: Kind[Any]
    default: Any
    help: str
    aliases: tuple[str, ...] = ()
    check: Callable[[Any], object] | None = None
    is_secret: bool = False
    show: str | None = None

    def read(self, text: object) -> Any:
        """Read the text of an option.

        Raises:
            ValueError: says what is allowed.
        """
        value = self.kind.read(text)
        if self.check is not None:
            self.check(value)
        return value


class Values(dict[str, Any]):
    """A value for each declared option, by its name.

    `given` has the names that were given (the others have their defaults), `warnings` sentences
    about what was left out.
    """

    def __init__(self, values: Mapping[str, Any], given: Iterable[str], warnings: Iterable[str] = ()) -> None:
        super().__init__(values)
        self.given = frozenset(given)
        self.warnings = tuple(warnings)

    def warn(self) -> None:
        """Log the warnings, each once in a process, as Spark plans every micro-batch again."""
        for sentence in self.warnings:
            if sentence not in _warned:
                _warned.add(sentence)
                _log.warning("%s", sentence)


class _Seen(Values):
    """Values that remember which of them a rule looked at."""

    def __init__(self, values: Mapping[str, Any], given: Iterable[str]) -> None:
        super().__init__(values, given)
        self.looked_at: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.looked_at.add(name)
        return super().__getitem__(name)


@dataclass(frozen=True)
class Options:
    """All options of one thing.

    Args:
        declared: the options.
        rules: judge the values together.
        advice: a name that is wrong but likely → what to do instead.
        ignored: names that are left out with a warning.
        noun: what has the options, for people.
    """

    declared: tuple[DataSourceOption, ...]
    rules: tuple[Rule, ...] = ()
    advice: Mapping[str, str] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()
    noun: str = "format('sparrow')"

    def read(self, given: Mapping[str, str]) -> Values:
        """Read a value for every option.

        Raises:
            InvalidArgument: names all that is wrong.
        """
        found, faults = self.judge(given)
        if faults:
            raise InvalidArgument(self._text(faults))
        return found

    def judge(self, given: Mapping[str, str]) -> tuple[Values, list[str]]:
        """Return a value for every option, the default for one that could not be read; and all
        faults, as sentences.
        """
        taken, faults, warnings = self._sort(given)
        values: dict[str, Any] = {}
        unread = {self._meant(name) for name in given}
        for option in self.declared:
            values[option.name], wrong = _value(option, taken.get(option.name))
            unread |= {option.name} if wrong else set()
            faults += wrong
        # A value that could not be read has its default here; a rule that looks at it would report
        # the same fault twice.
        for rule in self.rules:
            seen = _Seen(values, taken)
            found = list(rule(seen))
            faults += [] if seen.looked_at & unread else found
        return Values(values, taken, warnings), faults

    def _meant(self, name: str) -> str | None:
        """Return the option that an unknown name is likely to mean."""
        known = {
            plain(each): option.name for option in self.declared for each in (option.name, *option.aliases)
        }
        word = plain(name)
        close = None if word in known else closest(word, known)
        return None if close is None else known[close]

    def _sort(self, given: Mapping[str, str]) -> tuple[dict[str, tuple[str, str]], list[str], list[str]]:
        """Return, by option, the name that was used and its text; the faults of names; the names
        that are left out.
        """
        by_name = {
            plain(name): (option, name) for option in self.declared for name in (option.name, *option.aliases)
        }
        advice = {plain(name): text for name, text in self.advice.items()}
        ignored = {plain(name): name for name in self.ignored}
        taken: dict[str, tuple[str, str]] = {}
        faults: list[str] = []
        warnings: list[str] = []
        for name, text in given.items():
            word = plain(name)
            if word in by_name:
                # Spark hands the names over in lower case; errors show them as they are documented.
                option, spelled = by_name[word]
                faults += _twice(taken.get(option.name), spelled, text)
                taken[option.name] = spelled, text
            elif word in advice:
                faults.append(f"{name} is not offered: {advice[word]}")
            elif word in ignored:
                warnings.append(
                    f"the option {ignored[word]} of Kafka's clients means nothing to Sparrow and is left out"
                )
            elif word not in _SPARKS_OWN:
                faults.append(self._unknown(name))
        return taken, faults, warnings

    def _unknown(self, name: str) -> str:
        known = {each.lower(): each for option in self.declared for each in (option.name, *option.aliases)}
        known |= {each.lower(): each for each in self.ignored}
        close = suggestion(name.lower(), known)
        for lowered, spelled in known.items():
            close = close.replace(f"{lowered!r}?", f"{spelled!r}?")
        return f"there is no option {name!r}{close}"

    def _text(self, faults: list[str]) -> str:
        unique = list(dict.fromkeys(faults))
        if len(unique) == 1:
            return f"an option of {self.noun} is wrong: {unique[0]}"
        return f"{len(unique)} options of {self.noun} are wrong:" + "".join(f"\n- {text}" for text in unique)

    def table(self) -> list[tuple[str, str, str, str]]:
        """Return name, kind, default and help of each option, for the documentation."""
        return [(each.name, each.kind.name, _shown_default(each), each.help) for each in self.declared]


def _shown_default(option: DataSourceOption) -> str:
    if option.show is not None:
        return option.show
    return "" if option.default is None else option.kind.show(option.default)


def plain(name: str) -> str:
    """Return a name without case and underscores."""
    return name.lower().replace("_", "")


def _value(option: DataSourceOption, given: tuple[str, str] | None) -> tuple[Any, list[str]]:
    if given is None:
        return option.default, []
    name, text = given
    try:
        return option.read(text), []
    except ValueError as error:
        wrong = faults_of(error, text, is_secret=option.is_secret)
        return option.default, [f"{name}{_dotted(path)}{fault}" for path, fault in wrong]


def _dotted(path: tuple[str | int, ...]) -> str:
    return "".join(f"[{part!r}]" for part in path)


def _twice(before: tuple[str, str] | None, name: str, text: str) -> list[str]:
    """Refuse two names of one option, unless their values agree."""
    if before is None or before[1] == text:
        return []
    return [f"{before[0]} and {name} are the same option with two values; give one"]
