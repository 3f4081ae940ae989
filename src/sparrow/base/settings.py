"""Settings: each is declared once, on the frozen object that uses it, and everything else follows.

A field made by `option(...)` is an option of `sparrow serve`: YAML key, kind (unit and range),
default and help. A field made by `nested(...)` has an object with options of its own, so that a
configuration contains what its parts take. `options_of` lists all of them, `resolve` finds their
values, and `build` makes the objects.

A value comes from the first of: flag, environment, file, default. A wrong value is reported with
its location (flag, variable, or file and line), and all wrong ones at once.

YAML keys are dotted paths (`native.port`); flag (`--native-port`) and variable
(`SPARROW_NATIVE_PORT`) follow from the key unless the declaration says otherwise; `flag=""` keeps a
secret off the command line.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct, field

from sparrow.base.errors import InvalidConfig
from sparrow.base.faults import Fault, Misfit, Path, by_line, dotted, faults_of, suggestion
from sparrow.base.units import exact_size, format_duration, parse_duration_ms, parse_size_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

ENVIRONMENT_PREFIX = "SPARROW_"
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")
_OPTION, _NESTED = "option", "nested"
"""Keys of the metadata of fields."""


def show_plain(value: object) -> str:
    """Return a value for people: "true", "none", "5"."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) or value else "none"


class Kind(Struct, Generic[T_co], frozen=True):
    """A type of option: `read` takes text or YAML's value and raises ValueError with what is
    allowed.
    """

    name: str
    read: Callable[[object], T_co]
    repeats: bool = False
    """True if the flag may be given several times; the texts arrive as a list."""
    schema: Mapping[str, object] | Callable[[], Mapping[str, object]] = field(default_factory=dict)
    """Permitted values in a file, as JSON Schema for editors; it allows whatever `read` takes. See
    `schema_of`.
    """
    show: Callable[[Any], str] = show_plain
    """Return a value as people write it."""
    choices: tuple[str, ...] = ()
    """All values, if they are few."""


def schema_of(kind: Kind[Any]) -> Mapping[str, object]:
    """Return the JSON Schema of the values in a file."""
    return kind.schema() if callable(kind.schema) else kind.schema


def deferred(module: str, attribute: str, name: str, *, repeats: bool = False) -> Kind[Any]:
    """Return a kind of another module, which is imported only when a value is read."""

    def load() -> Kind[Any]:
        found: Kind[Any] = getattr(importlib.import_module(module), attribute)
        return found

    return Kind(name, lambda given: load().read(given), repeats, lambda: schema_of(load()))


class Option(Struct, frozen=True):
    """One declared option.

    `name` is the field's, behind the sections of the key if the object is named as the first one
    (`http_max_body_bytes`).
    """

    name: str
    path: tuple[str, ...]
    """From the configuration to the value: names of fields."""
    key: str
    flag: str
    environment: str
    kind: Kind[Any]
    default: object
    help: str
    show: str
    """The default as it is shown to people."""
    secret: bool = False
    """True if the value never appears in an error."""

    def value_in(self, configuration: object) -> Any:
        """Return the value that a configuration has."""
        for name in self.path:
            configuration = getattr(configuration, name)
        return configuration


class Located(Struct, frozen=True):
    """A value from a file and its location: "sparrow.yml:12".

    `lines` has the lines of its parts, as far as they are known. `faults` are sentences about it;
    then the value is not valid, but it is there if it could be read, so that its other parts can be
    judged.
    """

    value: object
    location: str
    lines: Mapping[Path, int] = field(default_factory=dict)
    faults: tuple[str, ...] = ()

    def location_of(self, path: Path) -> str:
        """Return the location of a part, or of the section that contains it."""
        while path and path not in self.lines:
            path = path[:-1]
        file = self.location.rpartition(":")[0]
        return f"{file}:{self.lines[path]}" if path else self.location


class Resolved(Struct, frozen=True):
    """The values by option name, the source of each, and warnings of possible mistakes."""

    values: dict[str, Any]
    sources: dict[str, str]
    warnings: list[str] = field(default_factory=list)


def option(
    key: str,
    kind: Kind[T],
    default: T,
    help: str,  # noqa: A002 - what argparse and Typer call it, too
    *,
    name: str | None = None,
    flag: str | None = None,
    environment: str | None = None,
    show: str | None = None,
    secret: bool = False,
) -> T:
    """Return a dataclass field that declares an option; see the module's text.

    Args:
        name: the option's name, where it differs from the field's.
        show: the default as it is shown; None: as the kind shows it.
    """
    words = key.replace(".", "-").replace("_", "-")
    declared = {
        "name": name,
        "key": key,
        "kind": kind,
        "help": help,
        "flag": f"--{words}" if flag is None else flag,
        "environment": _variable(words) if environment is None else environment,
        "show": kind.show(default) if show is None else show,
        "secret": secret,
    }
    made: T = dataclasses.field(default_factory=lambda: default, metadata={_OPTION: declared})
    return made


def nested(configuration: type[T]) -> T:
    """Return a dataclass field with an object that declares options of its own."""
    made: T = dataclasses.field(default_factory=configuration, metadata={_NESTED: configuration})
    return made


def _variable(words: str) -> str:
    return ENVIRONMENT_PREFIX + words.replace("-", "_").upper()


def options_of(configuration: type) -> list[Option]:
    """Return the declared options of a dataclass and its nested objects, in order; those of one
    section of the file follow each other. One that several objects inherit occurs once.
    """
    found: dict[str, Option] = {}
    for each in _declared(configuration, ()):
        found.setdefault(each.key, each)
    sections = list(dict.fromkeys(map(_section, found.values())))
    return sorted(found.values(), key=lambda each: sections.index(_section(each)))


def _section(each: Option) -> str:
    section, dot, _ = each.key.partition(".")
    return section if dot else each.key


def _declared(configuration: type, path: tuple[str, ...]) -> Iterator[Option]:
    for each in dataclasses.fields(configuration):
        declared = each.metadata.get(_OPTION)
        if _NESTED in each.metadata:
            yield from _declared(each.metadata[_NESTED], (*path, each.name))
        elif declared is not None and not isinstance(each.default_factory, dataclasses._MISSING_TYPE):  # noqa: SLF001
            sections = declared["key"].split(".")[:-1]
            is_section = bool(path and sections) and sections[0] == path[-1]
            name = "_".join([*sections, each.name]) if is_section else each.name
            found = {**declared, "name": declared["name"] or name}
            yield Option(path=(*path, each.name), default=each.default_factory(), **found)


def build(configuration: type[T], values: Mapping[str, Any]) -> T:
    """Return a configuration with these values, by the names of options; others have defaults."""
    keys = {each.name: each.key for each in options_of(configuration)}
    return _build(configuration, {keys[name]: value for name, value in values.items()})


def _build(configuration: type[T], values: Mapping[str, Any]) -> T:
    given = {}
    for each in dataclasses.fields(configuration):  # type: ignore[arg-type]  # it is a dataclass
        if _NESTED in each.metadata:
            given[each.name] = _build(each.metadata[_NESTED], values)
        elif (key := each.metadata.get(_OPTION, {}).get("key")) in values:
            given[each.name] = values[key]
    return configuration(**given)


def resolve(
    options: Iterable[Option],
    *,
    flags: Mapping[str, object],
    environment: Mapping[str, str],
    file: Mapping[str, Located],
    advice: Mapping[str, str] | None = None,
) -> Resolved:
    """Choose a value for every option.

    Args:
        options: the declarations.
        flags: option name → text (or list of texts), only of flags that were given.
        environment: all variables.
        file: dotted key → value, from the configuration file.
        advice: names at the top of the file that are wrong but likely → what to do instead.

    Raises:
        InvalidConfig: every wrong value and unknown key, one per line.
    """
    declared = list(options)
    errors = [sentence for found in file.values() for sentence in found.faults]
    errors += [
        _unknown_key(key, found.location, declared, advice or {})
        for key, found in file.items()
        if not found.faults and not _knows(declared, key)
    ]
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for each in declared:
        given, source = _first(each, flags, environment, file)
        try:
            values[each.name] = each.default if source == "default" else each.kind.read(given)
            sources[each.name] = source
        except ValueError as error:
            found = file.get(each.key, Located(given, source))
            at = found if found.location == source else Located(given, source)
            errors += _sentences(each, at, error)
    if errors:
        raise InvalidConfig("\n".join(by_line(errors)))
    return Resolved(values, sources, _misspelt_variables(declared, environment))


def _sentences(wanted: Option, given: Located, error: ValueError) -> list[str]:
    return [
        f"{given.location_of(path)}: {dotted((wanted.key, *path))}{text}"
        for path, text in faults_of(error, given.value, is_secret=wanted.secret)
    ]


def _first(
    wanted: Option, flags: Mapping[str, object], environment: Mapping[str, str], file: Mapping[str, Located]
) -> tuple[object, str]:
    if wanted.name in flags:
        return flags[wanted.name], wanted.flag
    if wanted.environment in environment:
        return environment[wanted.environment], f"environment variable {wanted.environment}"
    if wanted.key in file and not file[wanted.key].faults:
        return file[wanted.key].value, file[wanted.key].location
    return None, "default"


def _knows(options: list[Option], key: str) -> bool:
    return any(each.key == key for each in options)


def _unknown_key(key: str, location: str, options: list[Option], advice: Mapping[str, str]) -> str:
    section = key.partition(".")[0]
    if section in advice:
        return f"{location}: there is no option {key!r}; {advice[section]}"
    return f"{location}: there is no option {key!r}{suggestion(key, [each.key for each in options])}"


def _misspelt_variables(options: list[Option], environment: Mapping[str, str]) -> list[str]:
    """Return variables whose names are close to one of Sparrow's. No error: Kubernetes sets
    SPARROW_PORT and more for a service named sparrow.
    """
    names = [each.environment for each in options]
    warnings = []
    for variable in environment:
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in names:
            close = difflib.get_close_matches(variable, names, n=1, cutoff=0.85)
            if close:
                warnings.append(f"environment variable {variable} is not used; did you mean {close[0]}?")
    return warnings


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
        close = suggestion(given.lower(), ("true", "false")) if isinstance(given, str) else ""
        raise ValueError(f"true or false{close}")
    return found


def integer(low: int, high: int) -> Kind[int]:
    """Return the kind of a whole number within bounds, both included."""

    def read(given: object) -> int:
        text = str(given).strip()
        if isinstance(given, bool) or not _WHOLE.fullmatch(text) or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(text)

    schema = {
        "anyOf": [
            {"type": "integer", "minimum": low, "maximum": high},
            {"type": "string", "pattern": r"^\s*-?\d+\s*$"},
        ]
    }
    return Kind("number", read, schema=schema)


def decimal(low: float, high: float) -> Kind[float]:
    """Return the kind of a number within bounds, both included."""

    def read(given: object) -> float:
        try:
            number = float("nan") if isinstance(given, bool) else float(given)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            number = float("nan")
        if not low <= number <= high:
            raise ValueError(f"a number from {low:g} to {high:g}")
        return number

    return Kind("number", read)


def size(low: int, high: int) -> Kind[int]:
    """Return the kind of a size in bytes, within bounds."""
    read = _bounded(parse_size_bytes, low, high, "bytes")
    return Kind("size", read, schema=_amount("64 MiB", low, high), show=exact_size)


def duration(low: int, high: int) -> Kind[int]:
    """Return the kind of a duration in milliseconds, within bounds."""
    read = _bounded(parse_duration_ms, low, high, "ms")
    return Kind("duration", read, schema=_amount("30s", low, high), show=_show_duration)


def _show_duration(duration_ms: int) -> str:
    return format_duration(duration_ms) if duration_ms else "0"


def _amount(example: str, low: int, high: int) -> dict[str, object]:
    """Return the kind of a number, or a text with a unit."""
    number = {"type": "number", "minimum": low, "maximum": high}
    return {"anyOf": [number, {"type": "string", "examples": [example]}]}


def _bounded(parse: Callable[[str], int], low: int, high: int, unit: str) -> Callable[[object], int]:
    def read(given: object) -> int:
        value = parse(str(given))
        if not low <= value <= high:
            raise ValueError(f"{low} to {high} {unit}")
        return value

    return read


def choice(*words: str) -> Kind[str]:
    """Return the kind of one of some words."""

    spelled = {False: "off", True: "on"}  # YAML reads a bare `off` as false

    def read(given: object) -> str:
        text = spelled[given] if isinstance(given, bool) else str(given)
        if text not in words:
            close = suggestion(text.lower(), words) if isinstance(given, str) else ""
            raise ValueError(f"one of {', '.join(filter(None, words))}{close}")
        return text

    allowed = [*words, *(value for value, word in spelled.items() if word in words)]
    return Kind("|".join(words), read, schema={"enum": allowed}, show=str, choices=words)


def _read_pairs(given: object) -> dict[str, str]:
    """Read a mapping from YAML, or "name=value" texts: a list (repeated flag) or one text with
    commas between.
    """
    if isinstance(given, dict):
        return _read_mapping(given)
    texts = given if isinstance(given, list) else [part for part in str(given).split(",") if part.strip()]
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = str(text).partition("=")
        if not equals or not name.strip():
            raise ValueError("name=value")
        pairs[name.strip()] = value.strip()
    return pairs


def _read_mapping(given: dict[object, object]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    faults: list[Fault] = []
    for name, value in given.items():
        if isinstance(name, bool) or not isinstance(name, str | int | float):
            faults.append(Fault((str(name),), ": a name is a text; put it in quotes"))
        elif not isinstance(value, str | int | float):
            # The value may be a secret.
            faults.append(Fault((str(name),), ": a text or a number is expected; put it in quotes"))
        else:
            pairs[str(name)] = str(value).lower() if isinstance(value, bool) else str(value)
    if faults:
        raise Misfit(faults)
    return pairs


def _read_words(given: object) -> tuple[str, ...]:
    """Read a list from YAML, or one text with commas between."""
    texts = given if isinstance(given, list | tuple) else _read_text(given).split(",")
    return tuple(word for word in (_read_text(text).strip() for text in texts) if word)


_PLAIN: Mapping[str, object] = {"type": ["string", "number", "boolean"]}
PAIRS_SCHEMA: Mapping[str, object] = {
    "anyOf": [
        {"type": "object", "additionalProperties": _PLAIN},
        {"type": "array", "items": {"type": "string"}},
        {"type": "string"},
    ]
}
BOOLEAN_SCHEMA: Mapping[str, object] = {"type": ["boolean", "string", "integer"]}
TEXT_SCHEMA: Mapping[str, object] = {"type": ["string", "number"]}
TEXTS_SCHEMA: Mapping[str, object] = {
    "anyOf": [TEXT_SCHEMA, {"type": "array", "items": TEXT_SCHEMA}, {"type": "null"}]
}
"""One text, or a list of texts."""
TEXT = Kind("text", _read_text, schema=TEXT_SCHEMA)
WORDS = Kind("text", _read_words, repeats=True, schema=TEXTS_SCHEMA)
PATH = Kind("path", _read_text, schema=TEXT_SCHEMA)
BOOLEAN = Kind("true|false", _read_boolean, schema=BOOLEAN_SCHEMA)
PAIRS = Kind("name=value", _read_pairs, repeats=True, schema=PAIRS_SCHEMA)
