"""A YAML file as a flat map of dotted keys, each with its line, and the lines of the parts of its
value.

Safe: plain data only, never objects. Stricter than YAML where YAML hides mistakes: a duplicate key
is refused. A mapping under a key that is declared to have one (`whole`) stays a value; any other
mapping is a section.

A file that is no YAML ends the reading. A fault of one value is kept with that value
(`Located.faults`), so that a reader of the file learns of everything at once. A file cannot cost
more than its size: aliases that multiply are counted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml

from sparrow.base.errors import InvalidConfig
from sparrow.base.settings import Located

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from sparrow.base.faults import Path

MAX_FILE_BYTES = 16 << 20
MAX_VALUES = 200_000
"""Limit of the values inside one value; an alias counts as often as it is used."""
MAX_KEYS = 2_000
"""Limit of the options of one file; keys repeated by an alias count as often as it is used."""
_MAX_SECTION_DEPTH = 8
_MAX_DIGITS = 100
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_NO_TEXT_IS = "null, or half of a surrogate pair"
_TEXT = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"
_INTEGER = "tag:yaml.org,2002:int"


def read_yaml(path: str, whole: Collection[str]) -> dict[str, Located]:
    """Return dotted key → value with its location.

    Args:
        path: the file; its name appears in every error.
        whole: dotted keys whose value is taken as it is, whatever its shape.

    Raises:
        InvalidConfig: the file cannot be read, is no YAML, or is no mapping.
    """
    return YamlFile(path).flat(whole)


class YamlFile:
    """A file that was read and is a mapping.

    Args:
        path: the file; its name appears in every error.
        noun: the kind of file, for people.
        example: a line of such a file.
        remedy: what to do when it cannot be read.

    Raises (from the constructor):
        InvalidConfig: the file cannot be read, is no YAML, or is no mapping.
    """

    def __init__(
        self,
        path: str,
        *,
        noun: str = "configuration file",
        example: str = "data_dir: ./data",
        remedy: str = "create it or name another by --config",
    ) -> None:
        self.path = path
        self._loader = _loader(path, noun, remedy)
        try:
            root = self._loader.get_single_node()
        except yaml.MarkedYAMLError as error:
            raise InvalidConfig(self._not_yaml(error)) from None
        except (yaml.YAMLError, RecursionError) as error:
            reason = "nested too deep" if isinstance(error, RecursionError) else error
            raise InvalidConfig(f"{path}:1: not YAML: {reason}") from None
        if not isinstance(root, yaml.MappingNode | None):
            raise InvalidConfig(f"{path}:1: a mapping of options is expected at the top, such as {example!r}")
        self._root = root
        self._walked: set[int] = set()
        self._read: dict[tuple[int, int], Located] = {}
        self.sections: tuple[str, ...] = tuple(self._names(root)) if root is not None else ()
        """The names at the top, in order."""

    def _names(self, root: yaml.MappingNode) -> Iterator[str]:
        for key_node, _ in root.value:
            yield self._name(key_node)

    def _name(self, key_node: yaml.Node) -> str:
        """Return a key as text. A key that is no plain text or number names nothing, and may
        multiply when it is built.
        """
        if not isinstance(key_node, yaml.ScalarNode):
            return "(a mapping)" if isinstance(key_node, yaml.MappingNode) else "(a list)"
        if key_node.tag == _MERGE or len(key_node.value) > _MAX_DIGITS:
            return str(key_node.value)
        return str(self._value(key_node, []))

    def flat(self, whole: Collection[str]) -> dict[str, Located]:
        """Return dotted key → value with its location; see `read_yaml`."""
        found: dict[str, Located] = {}
        if self._root is not None:
            self._flatten(self._root, "", frozenset(whole), found)
        return found

    def _flatten(
        self, section: yaml.Node, prefix: str, whole: frozenset[str], found: dict[str, Located]
    ) -> None:
        first: dict[str, int] = {}
        for key_node, value_node in section.value if isinstance(section, yaml.MappingNode) else ():
            line = key_node.start_mark.line + 1
            key = prefix + self._name(key_node)
            if len(found) >= MAX_KEYS:
                self._add_fault(found, key, line, f"more than {MAX_KEYS} options are before this one")
                return
            if key_node.tag == _MERGE:
                self._add_fault(
                    found, key, line, "options cannot be merged by '<<', only the contents of one"
                )
                continue
            if key in first or key in found:
                before = first.get(key) or found[key].location.rpartition(":")[2]
                self._add_fault(found, key, line, f"{key!r} occurs twice; the first is on line {before}")
                continue
            first[key] = line
            if key.count(".") > _MAX_SECTION_DEPTH:
                self._add_fault(found, key, line, f"sections are nested too deep at {key[:80]!r}")
            elif key not in whole and self._is_section(value_node, key, whole):
                self._flatten(value_node, f"{key}.", whole, found)
            else:
                found[key] = self._located(value_node, line)

    def _is_section(self, node: yaml.Node, key: str, whole: frozenset[str]) -> bool:
        """Return True if the node may be a section; an empty value only if a section of that name
        is known.
        """
        if isinstance(node, yaml.MappingNode) and node.value:
            return True
        is_empty = isinstance(node, yaml.MappingNode) or node.tag == "tag:yaml.org,2002:null"
        return is_empty and any(each.startswith(f"{key}.") for each in whole)

    def _add_fault(self, found: dict[str, Located], key: str, line: int, fault: str) -> None:
        location = f"{self.path}:{line}"
        before = found.get(key, Located(None, location))
        found[key] = Located(
            before.value, before.location, before.lines, (*before.faults, f"{location}: {fault}")
        )

    def _located(self, node: yaml.Node, line: int) -> Located:
        """Return a node's value with its location. The lines are read once, before construction,
        which changes the nodes of a value that merges others.
        """
        known = self._read.get((id(node), line))
        if known is None:
            known = self._read[id(node), line] = self._constructed(node, line)
        return known

    def _constructed(self, node: yaml.Node, line: int) -> Located:
        faults: list[str] = []
        lines: dict[Path, int] = {}
        value = None
        if self._is_bounded(node, line, faults):
            self._refuse_duplicates(node, faults)
            self._take_as_text(node, faults)
            value = self._value(node, faults)
            lines = dict(self._lines(node, ()))
        return Located(value, f"{self.path}:{line}", lines, tuple(faults))

    def _take_as_text(self, node: yaml.Node, faults: list[str]) -> None:
        """Make texts of those scalars that cannot be read (such as the day 2026-02-30), so that the
        values around them can.
        """
        waiting, seen = [node], set()
        while waiting:
            each = waiting.pop()
            if id(each) in seen:
                continue
            seen.add(id(each))
            if isinstance(each, yaml.CollectionNode):
                waiting += _children(each)
            elif each.tag != _MERGE:
                known = len(faults)
                self._value(each, faults)
                if len(faults) > known:
                    # The loader takes an unfinished node for one that contains itself.
                    self._loader.recursive_objects.pop(each, None)
                    each.tag = _TEXT

    def _value(self, node: yaml.Node, faults: list[str]) -> Any:
        try:
            return self._loader.construct_object(node, deep=True)
        except yaml.MarkedYAMLError as error:
            faults.append(self._not_yaml(error))
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            faults.append(f"{self.path}:{node.start_mark.line + 1}: {error}; put the value in quotes")
        return None

    def _not_yaml(self, error: yaml.MarkedYAMLError) -> str:
        mark = error.problem_mark or error.context_mark
        return f"{self.path}:{mark.line + 1 if mark else 1}: not YAML: {error.problem or error.context}"

    def _is_bounded(self, node: yaml.Node, line: int, faults: list[str]) -> bool:
        waiting, count = [node], 0
        while waiting and count <= MAX_VALUES:
            each = waiting.pop()
            count += 1
            if each.tag == _INTEGER and len(each.value) > _MAX_DIGITS:
                faults.append(
                    f"{self.path}:{each.start_mark.line + 1}: a number of more than {_MAX_DIGITS} digits"
                )
                return False
            if isinstance(each, yaml.ScalarNode) and _NO_TEXT.search(each.value):
                faults.append(
                    f"{self.path}:{each.start_mark.line + 1}: a text has a letter that is none "
                    f"({_NO_TEXT_IS})"
                )
                return False
            if isinstance(each, yaml.CollectionNode):
                waiting += _children(each)
        if waiting:
            faults.append(
                f"{self.path}:{line}: more than {MAX_VALUES} values are here; an alias counts as "
                "often as it is used, and must"
                " not be in itself"
            )
        return not waiting

    def _refuse_duplicates(self, node: yaml.Node, faults: list[str]) -> None:
        """Walk a value; an alias is walked once, before what it merges is in it."""
        if id(node) in self._walked or not isinstance(node, yaml.CollectionNode):
            return
        self._walked.add(id(node))
        keys: set[str] = set()
        for child in node.value if isinstance(node, yaml.MappingNode) else ():
            key = self._name(child[0])
            if key in keys:
                faults.append(f"{self.path}:{child[0].start_mark.line + 1}: {key!r} occurs twice")
            keys.add(key)
        for part in _children(node):
            self._refuse_duplicates(part, faults)

    def _lines(self, node: yaml.Node, path: Path) -> Iterator[tuple[Path, int]]:
        """Return the lines of the parts of a constructed value (so that merged values are in
        it).
        """
        if isinstance(node, yaml.MappingNode):
            for key_node, value_node in node.value:
                inner: Path = (*path, self._name(key_node))
                yield inner, key_node.start_mark.line + 1
                yield from self._lines(value_node, inner)
        elif isinstance(node, yaml.SequenceNode):
            for index, value_node in enumerate(node.value):
                yield (*path, index), value_node.start_mark.line + 1
                yield from self._lines(value_node, (*path, index))


def _children(node: yaml.CollectionNode) -> list[yaml.Node]:
    return [part for child in node.value for part in (child if isinstance(child, tuple) else (child,))]


def _loader(path: str, noun: str, remedy: str) -> yaml.SafeLoader:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidConfig(f"{noun} {path} cannot be read: {error.strerror}; {remedy}") from None
    if len(data) > MAX_FILE_BYTES:
        raise InvalidConfig(f"{noun} {path} has more than {MAX_FILE_BYTES} bytes; is it the right one?")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidConfig(f"{path}:{line}: this is not UTF-8 text; save the file as UTF-8") from None
    try:
        return yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise InvalidConfig(f"{path}:{line}: there is a character here that YAML does not allow") from None
