"""Options: each is declared once, and everything else follows from the declaration.

A configuration is a frozen dataclass whose fields are made by `option(...)`: name, YAML key, flag, environment variable, type,
default and help stand in one line of source. A value comes from the first of: flag, environment, file, default. A wrong
value is reported with the place that it came from (flag, variable, or file and line) and all wrong ones at once.

YAML keys are dotted paths (`native.port`); flag (`--native-port`) and variable (`SPARROW_NATIVE_PORT`) follow from the key
unless the declaration says otherwise; `flag=""` keeps a secret off the command line.
"""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sparrow.base.errors import InvalidConfig
from sparrow.base.units import parse_duration_ms, parse_size_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

ENVIRONMENT_PREFIX = "SPARROW_"


@dataclass(frozen=True, slots=True)
class Kind(Generic[T_co]):
    """A type of option: `read` takes text or what YAML gave and raises ValueError with what is allowed."""

    name: str
    read: Callable[[object], T_co]
    repeats: bool = False
    """The flag may be given several times; the texts arrive as a list."""


@dataclass(frozen=True, slots=True)
class Option:
    """One declared option. `name` is the dataclass field."""

    name: str
    key: str
    flag: str
    environment: str
    kind: Kind[Any]
    default: object
    help: str
    show: str
    """How the default is written for people."""
    secret: bool = False
    """The value never appears in an error."""


@dataclass(frozen=True, slots=True)
class Located:
    """A value from a file and where it stands: "sparrow.yml:12"."""

    value: object
    place: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """The values by option name, where each came from, and what looked like a mistake but is none for sure."""

    values: dict[str, Any]
    sources: dict[str, str]
    warnings: list[str] = field(default_factory=list)


def option(
    key: str,
    kind: Kind[T],
    default: T,
    help: str,  # noqa: A002 - what argparse and Typer call it, too
    *,
    flag: str | None = None,
    environment: str | None = None,
    show: str | None = None,
    secret: bool = False,
) -> T:
    """A dataclass field that declares an option; see the module's text."""
    words = key.replace(".", "-").replace("_", "-")
    declared = {
        "key": key,
        "kind": kind,
        "help": help,
        "flag": f"--{words}" if flag is None else flag,
        "environment": _variable(words) if environment is None else environment,
        "show": str(default) if show is None else show,
        "secret": secret,
    }
    made: T = field(default_factory=lambda: default, metadata={"option": declared})
    return made


def _variable(words: str) -> str:
    return ENVIRONMENT_PREFIX + words.replace("-", "_").upper()


def options_of(configuration: type) -> list[Option]:
    """The declared options of a dataclass, in order."""
    found = []
    for each in dataclasses.fields(configuration):
        declared = each.metadata.get("option")
        if declared is not None and not isinstance(each.default_factory, dataclasses._MISSING_TYPE):  # noqa: SLF001
            found.append(Option(name=each.name, default=each.default_factory(), **declared))
    return found


def resolve(
    options: Iterable[Option],
    *,
    flags: Mapping[str, object],
    environment: Mapping[str, str],
    file: Mapping[str, Located],
) -> Resolved:
    """Choose a value for every option.

    Args:
        options: the declarations.
        flags: option name → text (or list of texts), only of flags that were given.
        environment: all variables.
        file: dotted key → value, from the configuration file.

    Raises:
        InvalidConfig: every wrong value and unknown key, one per line.
    """
    declared = list(options)
    errors = [
        _unknown_key(key, found.place, declared) for key, found in file.items() if not _knows(declared, key)
    ]
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for each in declared:
        given, source = _first(each, flags, environment, file)
        try:
            values[each.name] = each.default if source == "default" else each.kind.read(given)
            sources[each.name] = source
        except ValueError as error:
            shown = "what it is (not shown)" if each.secret else _shown(given)
            errors.append(f"{source}: {each.key} cannot be {shown}; it takes {error}")
    if errors:
        raise InvalidConfig("\n".join(errors))
    return Resolved(values, sources, _misspelt_variables(declared, environment))


def _first(
    wanted: Option, flags: Mapping[str, object], environment: Mapping[str, str], file: Mapping[str, Located]
) -> tuple[object, str]:
    if wanted.name in flags:
        return flags[wanted.name], wanted.flag
    if wanted.environment in environment:
        return environment[wanted.environment], f"environment variable {wanted.environment}"
    if wanted.key in file:
        return file[wanted.key].value, file[wanted.key].place
    return None, "default"


def _knows(options: list[Option], key: str) -> bool:
    return any(each.key == key for each in options)


def _unknown_key(key: str, place: str, options: list[Option]) -> str:
    return f"{place}: there is no option {key!r}{_suggestion(key, [each.key for each in options])}"


def _misspelt_variables(options: list[Option], environment: Mapping[str, str]) -> list[str]:
    """Variables close to one of ours. No error: Kubernetes sets SPARROW_PORT and more for a service named sparrow."""
    names = [each.environment for each in options]
    warnings = []
    for variable in environment:
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in names:
            close = difflib.get_close_matches(variable, names, n=1, cutoff=0.85)
            if close:
                warnings.append(f"environment variable {variable} is not used; did you mean {close[0]}?")
    return warnings


def _suggestion(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _shown(given: object) -> str:
    text = repr(given)
    return text if len(text) <= 80 else text[:77] + "..."


# ── kinds ─────────────────────────────────────────────────────────────────────────────────────────


def _read_text(given: object) -> str:
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        raise ValueError("a text")  # noqa: TRY004 - readers raise ValueError with what is allowed
    return str(given)


def _read_boolean(given: object) -> bool:
    words = {
        "true": True,
        "yes": True,
        "on": True,
        "1": True,
        "false": False,
        "no": False,
        "off": False,
        "0": False,
    }
    found = words.get(str(given).lower())
    if found is None:
        raise ValueError("true or false")
    return found


def integer(low: int, high: int) -> Kind[int]:
    """A whole number within bounds, both included."""

    def read(given: object) -> int:
        text = str(given).strip()
        if isinstance(given, bool) or not text.removeprefix("-").isdecimal() or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(text)

    return Kind("number", read)


def size(low: int, high: int) -> Kind[int]:
    """A size in bytes, within bounds."""
    return Kind("size", _bounded(parse_size_bytes, low, high, "bytes"))


def duration(low: int, high: int) -> Kind[int]:
    """A duration in milliseconds, within bounds."""
    return Kind("duration", _bounded(parse_duration_ms, low, high, "ms"))


def _bounded(parse: Callable[[str], int], low: int, high: int, unit: str) -> Callable[[object], int]:
    def read(given: object) -> int:
        value = parse(str(given))
        if not low <= value <= high:
            raise ValueError(f"{low} to {high} {unit}")
        return value

    return read


def choice(*words: str) -> Kind[str]:
    """One of some words."""

    def read(given: object) -> str:
        if str(given) not in words:
            raise ValueError("one of " + ", ".join(words))
        return str(given)

    return Kind("|".join(words), read)


def _read_pairs(given: object) -> dict[str, str]:
    """A mapping from YAML, or "name=value" texts: a list (repeated flag) or one text with commas between."""
    if isinstance(given, dict):
        return {_read_text(name): _scalar(value) for name, value in given.items()}
    texts = given if isinstance(given, list) else [part for part in str(given).split(",") if part.strip()]
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = str(text).partition("=")
        if not equals or not name.strip():
            raise ValueError("name=value")
        pairs[name.strip()] = value.strip()
    return pairs


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError("names with plain values")


def _read_words(given: object) -> tuple[str, ...]:
    """A list from YAML, or one text with commas between."""
    texts = given if isinstance(given, list | tuple) else str(given).split(",")
    return tuple(word for word in (_read_text(text).strip() for text in texts) if word)


TEXT = Kind("text", _read_text)
WORDS = Kind("text", _read_words, repeats=True)
PATH = Kind("path", _read_text)
BOOLEAN = Kind("true|false", _read_boolean)
PAIRS = Kind("name=value", _read_pairs, repeats=True)
