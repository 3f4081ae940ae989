"""Kinds of values that have parts: sections with named parts, lists, and declarations by name.

Each part has a kind of its own. A wrong part does not end the reading: all faults of a value are told together, each with its path, so that
the place in the file can be shown. What YAML gives is never changed.

Things that are declared by name may stand as a mapping or as a list; both mean the same:

    queues:                      queues:
      emails: {partitions: 4}      - {name: emails, partitions: 4}
      audit:                       - audit
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from sparrow.base.faults import Fault, Misfit, faults_of, misfit, shown, suggestion
from sparrow.base.options import TEXT, Kind, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

NAME = "name"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a section. `is_secret`: its value never appears in an error."""

    kind: Kind[Any]
    is_required: bool = False
    is_secret: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """What a section is made of.

    Args:
        noun: what one is, for people: "a queue".
        parts: by name.
        short: the part that a bare text stands for; "": a bare text is wrong.
        advice: name that is wrong but likely → what to do instead.
    """

    noun: str
    parts: Mapping[str, Part]
    short: str = ""
    advice: Mapping[str, str] = field(default_factory=dict)

    def read(self, given: object) -> dict[str, Any]:
        """The parts that are there, read.

        Raises:
            Misfit: names all that is wrong.
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
            raise Misfit(faults)
        return values

    def _unknown(self, name: str) -> str:
        if name in self.advice:
            return f": {self.advice[name]}"
        return f": {self.noun} has no setting {name!r}{suggestion(name, self.parts)}"

    def schema(self) -> dict[str, object]:
        """As JSON Schema."""
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


def section_of(section: Section, make: Callable[[dict[str, Any]], T]) -> Kind[T]:
    """A section as a kind, empty where nothing stands; `make` gets the parts that are there and may raise ValueError about the whole."""

    def read(given: object) -> T:
        return make(section.read({} if given is None else given))

    allowed: list[object] = [section.schema(), {"type": "null"}]
    if section.short:
        allowed.append(dict(schema_of(section.parts[section.short].kind)))
    return Kind("section", read, schema={"anyOf": allowed})


def list_of(kind: Kind[T], noun: str) -> Kind[tuple[T, ...]]:
    """A list of one kind of value, empty where nothing stands; a value that stands alone is a list of one."""

    def read(given: object) -> tuple[T, ...]:
        found, faults = [], []
        for index, value in enumerate(_listed(given)):
            try:
                found.append(kind.read(value))
            except ValueError as error:
                faults += [each.under(index) for each in faults_of(error, value)]
        if faults:
            raise Misfit(faults)
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
    # YAML makes true of on, and 1.1 of 1.10.
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise ValueError("a text; put it in quotes")  # noqa: TRY004 - what readers raise
    return str(given)


_NAME = Kind("text", _read_name, schema={"type": ["string", "integer"]})


def named(section: Section, make: Callable[[dict[str, Any]], T], noun: str) -> Kind[tuple[T, ...]]:
    """Declarations that each have a name, as a mapping or a list.

    Args:
        section: of one of them, without the name; its `short` is what a bare text behind the name means.
        make: gets the parts that are there, and the name as `NAME`.
        noun: of several: "queues".
    """
    with_name = Section(
        section.noun, {NAME: Part(_NAME, is_required=True), **section.parts}, NAME, section.advice
    )

    def read(given: object) -> tuple[T, ...]:
        found: list[T] = []
        faults: list[Fault] = []
        names: set[str] = set()
        for path, entry in _entries(given, section, noun):
            try:
                if isinstance(entry, _Wrong):
                    raise misfit(entry)
                values = with_name.read(entry)
                if values[NAME] in names:
                    raise misfit(f"{section.noun} of the name {values[NAME]!r} stands twice")
                names.add(values[NAME])
                found.append(make(values))
            except ValueError as error:
                faults += [each.under(path) for each in faults_of(error, entry)]
        if faults:
            raise Misfit(faults)
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
    """What is said of an entry that is no declaration."""

    __slots__ = ()


def _schema_of_named(section: Section, with_name: Section) -> dict[str, object]:
    behind: list[object] = [section.schema(), {"type": "null"}]
    if section.short:
        behind.append(dict(schema_of(section.parts[section.short].kind)))
    by_name = {"type": "object", "additionalProperties": {"anyOf": behind}}
    listed = {"type": "array", "items": {"anyOf": [with_name.schema(), dict(schema_of(TEXT))]}}
    return {"anyOf": [by_name, listed, {"type": "null"}]}
