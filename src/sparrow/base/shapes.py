"""Kinds of values that have parts: sections with named parts, lists, and declarations by name.

Each part has a kind of its own. A wrong part does not end the reading: all faults of a value are
reported together, each with its path, so that the place in the file can be shown. YAML's values are
never changed.

Things that are declared by name may be written as a mapping or as a list; both mean the same:

    queues:                      queues:
      emails: {partitions: 4}      - {name: emails, partitions: 4}
      audit:                       - audit
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from sparrow.base.faults import NOTHING, Fault, Misfit, Nothing, closest, faults_of, misfit, shown, suggestion
from sparrow.base.settings import TEXT, Kind, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

NAME = "name"


class Part(Struct, frozen=True):
    """A part of a section. `is_secret`: its value never appears in an error."""

    kind: Kind[Any]
    is_required: bool = False
    is_secret: bool = False
    blank: object = NOTHING
    """Value to continue with when a required part is missing or wrong."""


class Rest(NamedTuple):
    """The correct parts of a wrong section, and the names of those that could not be read.

    An unknown setting whose name is like that of a part may have been meant for it, so that part
    counts as not read.
    """

    values: dict[str, Any]
    unread: frozenset[str]


class Section(Struct, frozen=True):
    """The structure of a section.

    Args:
        noun: its name for people: "a queue".
        parts: by name.
        short: the part that a bare text sets; "": a bare text is wrong.
        advice: name that is wrong but likely → what to do instead; it quotes the name of the part
            that was meant.
        keeps_rest: if True, an error has the correct parts as its `rest`, a `Rest`.
    """

    noun: str
    parts: Mapping[str, Part]
    short: str = ""
    advice: Mapping[str, str] = field(default_factory=dict)
    keeps_rest: bool = False

    def read(self, given: object) -> dict[str, Any]:
        """Read the present parts.

        Raises:
            Misfit: names all faults.
        """
        if isinstance(given, str) and self.short:
            given = {self.short: given}
        if not isinstance(given, dict):
            raise misfit(f"{self.noun} is a mapping of {', '.join(self.parts)}, not {shown(given)}")
        faults: list[Fault] = []
        values: dict[str, Any] = {}
        for key, value in given.items():
            name = str(key)
            if name in self.parts:
                _collect(self.parts[name], name, value, values=values, faults=faults)
            else:
                faults.append(Fault((name,), self._unknown(name)))
        for name, part in self.parts.items():
            if part.is_required and name not in given:
                faults.append(Fault((), f": {self.noun} needs {name!r}"))
        if faults:
            raise Misfit(faults, self._rest(given, values))
        return values

    def _rest(self, given: Mapping[object, object], values: dict[str, Any]) -> Rest | Nothing:
        """Return the correct parts, with blanks for those that cannot be missing."""
        needed = {name: part.blank for name, part in self.parts.items() if part.is_required}
        if not self.keeps_rest or NOTHING in needed.values():
            return NOTHING
        unread = {name for name in needed if name not in values}
        for key in given:
            name = str(key)
            if name in self.parts:
                unread |= {name} - values.keys()
            else:
                unread |= self._meant(name)
        return Rest({**needed, **values}, frozenset(unread))

    def _meant(self, name: str) -> set[str]:
        if name in self.advice:
            return {part for part in self.parts if f"'{part}'" in self.advice[name]}
        close = closest(name, self.parts)
        return set() if close is None else {close}

    def _unknown(self, name: str) -> str:
        if name in self.advice:
            return f": {self.advice[name]}"
        return f": {self.noun} has no setting {name!r}{suggestion(name, self.parts)}"

    def schema(self) -> dict[str, object]:
        """Return the JSON Schema of the section."""
        made: dict[str, object] = {
            "type": "object",
            "properties": {name: dict(schema_of(part.kind)) for name, part in self.parts.items()},
            "additionalProperties": False,
        }
        required = [name for name, part in self.parts.items() if part.is_required]
        if required:
            made["required"] = required
        return made


def _collect(part: Part, name: str, value: object, *, values: dict[str, Any], faults: list[Fault]) -> None:
    try:
        values[name] = part.kind.read(value)
    except ValueError as error:
        faults += [each.under(name) for each in faults_of(error, value, is_secret=part.is_secret)]
        rest = rest_of(error)
        if rest is not NOTHING:
            values[name] = rest


def rest_of(error: ValueError) -> Any:
    """Return the value made in spite of an error; `NOTHING` if there is none."""
    return error.rest if isinstance(error, Misfit) else NOTHING


def built(section: Section, make: Callable[[dict[str, Any]], T], given: object) -> T:
    """Read a section and make a value of it. `make` gets the present parts.

    Raises:
        Misfit: names all faults. Its `rest` is the value made of the other parts, a dataclass whose
            field `unread` has the names of those that could not be read; only of a section with
            `keeps_rest`.
    """
    try:
        return make(section.read(given))
    except Misfit as error:
        if not isinstance(error.rest, Rest):
            raise
        try:
            made: Any = make(dict(error.rest.values))
        except ValueError as other:
            raise Misfit((*error.faults, *faults_of(other, given))) from None
        raise Misfit(error.faults, dataclasses.replace(made, unread=error.rest.unread)) from None


def section_of(section: Section, make: Callable[[dict[str, Any]], T]) -> Kind[T]:
    """Return the kind of a section, empty if nothing is written; `make` gets the present parts and
    may raise ValueError about the whole.
    """

    def read(given: object) -> T:
        return built(section, make, {} if given is None else given)

    allowed: list[object] = [section.schema(), {"type": "null"}]
    if section.short:
        allowed.append(dict(schema_of(section.parts[section.short].kind)))
    return Kind("section", read, schema={"anyOf": allowed})


def list_of(kind: Kind[T], noun: str, *, blank: object = NOTHING) -> Kind[tuple[T, ...]]:
    """Return the kind of a list of one kind of value, empty if nothing is written; a single value
    is a list of one.

    With `blank`, an error has the list as its `rest`, with that in the place of values that could
    not be read.
    """

    def read(given: object) -> tuple[T, ...]:
        found: list[Any] = []
        faults: list[Fault] = []
        for index, value in enumerate(_listed(given)):
            try:
                found.append(kind.read(value))
            except ValueError as error:
                faults += [each.under(index) for each in faults_of(error, value)]
                rest = rest_of(error)
                found.append(blank if rest is NOTHING else rest)
        if faults:
            raise Misfit(faults, NOTHING if blank is NOTHING else tuple(found))
        return tuple(found)

    one = dict(schema_of(kind))
    return Kind(
        f"list of {noun}", read, schema={"anyOf": [{"type": "array", "items": one}, one, {"type": "null"}]}
    )


def _listed(given: object) -> list[object]:
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


def _read_name(given: object) -> str:
    # YAML reads on as true, and 1.10 as 1.1.
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise ValueError("a text; put it in quotes")  # noqa: TRY004 - what readers raise
    return str(given)


_NAME = Kind("text", _read_name, schema={"type": ["string", "integer"]})


def named(
    section: Section,
    make: Callable[[dict[str, Any]], T],
    noun: str,
    *,
    blank: Callable[[str], object] | None = None,
) -> Kind[tuple[T, ...]]:
    """Return the kind of declarations that each have a name, as a mapping or a list.

    Args:
        section: of one of them, without the name; its `short` is the meaning of a bare text behind
            the name.
        make: gets the present parts, and the name as `NAME`.
        noun: of several: "queues".
        blank: the value that replaces one that could not be read, by its name ("" if that is
            unknown); then an error has the declarations as its `rest`.
    """
    with_name = replace(
        section, parts={NAME: Part(_NAME, is_required=True, blank=""), **section.parts}, short=NAME
    )

    def read(given: object) -> tuple[T, ...]:
        found: list[Any] = []
        faults: list[Fault] = []
        names: set[str] = set()

        def make_once(values: dict[str, Any]) -> T:
            name = values[NAME]
            if name and name in names:
                raise misfit(f"{section.noun} of the name {name!r} occurs twice")
            names.add(name)
            return make(values)

        for path, entry in _entries(given, section, noun):
            try:
                if isinstance(entry, _Wrong):
                    raise misfit(entry)
                found.append(built(with_name, make_once, entry))
            except ValueError as error:
                faults += [each.under(path) for each in faults_of(error, entry)]
                if blank is not None and rest_of(error) is NOTHING:
                    found.append(blank("" if isinstance(path, int) else path))
                elif blank is not None:
                    found.append(rest_of(error))
        if faults:
            raise Misfit(faults, NOTHING if blank is None else tuple(found))
        return tuple(found)

    return Kind(f"list of {noun}", read, schema=_schema_of_named(section, with_name))


def _entries(given: object, section: Section, noun: str) -> list[tuple[str | int, object]]:
    if given is None:
        return []
    if isinstance(given, list):
        return list(enumerate(given))
    if isinstance(given, dict):
        return [(str(key), _with_name(key, value, section)) for key, value in given.items()]
    raise ValueError(f"a list of {noun}, or a mapping of their names")


def _with_name(key: object, value: object, section: Section) -> object:
    if value is None:
        return {NAME: key}
    if isinstance(value, str) and section.short:
        return {NAME: key, section.short: value}
    if not isinstance(value, dict):
        return _Wrong(f"{section.noun} is a mapping of {', '.join(section.parts)}, not {shown(value)}")
    if value.get(NAME, key) != key:
        return _Wrong(f"{section.noun} cannot have two names, {key!r} and {shown(value[NAME])}")
    return {**value, NAME: key}


class _Wrong(str):
    """The fault of an entry that is no declaration."""

    __slots__ = ()


def _schema_of_named(section: Section, with_name: Section) -> dict[str, object]:
    behind: list[object] = [section.schema(), {"type": "null"}]
    if section.short:
        behind.append(dict(schema_of(section.parts[section.short].kind)))
    by_name = {"type": "object", "additionalProperties": {"anyOf": behind}}
    listed = {"type": "array", "items": {"anyOf": [with_name.schema(), dict(schema_of(TEXT))]}}
    return {"anyOf": [by_name, listed, {"type": "null"}]}
