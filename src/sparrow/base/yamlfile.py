"""A YAML file as a flat map of dotted keys, each with the line that it stands on.

Safe: plain data only, never objects. Stricter than YAML where YAML hides mistakes: a key that stands twice is refused. A
mapping under a key that is declared to hold one (`nested`) stays a value; any other mapping is a section.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from sparrow.base.errors import InvalidConfig
from sparrow.base.options import Located

if TYPE_CHECKING:
    from collections.abc import Collection

_MAX_SECTION_DEPTH = 8


def read_yaml(path: str, whole: Collection[str]) -> dict[str, Located]:
    """Dotted key → value with its place.

    Args:
        path: the file; its name appears in every error.
        whole: dotted keys whose value is taken as it is, whatever its shape.

    Raises:
        InvalidConfig: the file cannot be read, is no YAML, is no mapping, or has a key twice.
    """
    loader = _loader(path)
    try:
        root = loader.get_single_node()
        if root is None:
            return {}
        if not isinstance(root, yaml.MappingNode):
            raise InvalidConfig(
                f"{path}:1: a mapping of options is expected at the top, such as 'data_dir: ./data'"
            )
        return dict(_flatten(loader, path, root, "", frozenset(whole)))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise InvalidConfig(f"{path}:{line}: not YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise InvalidConfig(f"{path}: not YAML: {error}") from None
    finally:
        loader.dispose()


def _loader(path: str) -> yaml.SafeLoader:
    try:
        with open(path, encoding="utf-8") as file:
            return yaml.SafeLoader(file.read())
    except OSError as error:
        raise InvalidConfig(
            f"configuration file {path} cannot be read: {error.strerror}; create it or name another by --config"
        ) from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidConfig(f"configuration file {path} is not UTF-8 text: {error}") from None


def _flatten(
    loader: yaml.SafeLoader, path: str, section: yaml.MappingNode, prefix: str, whole: frozenset[str]
) -> list[tuple[str, Located]]:
    found: list[tuple[str, Located]] = []
    lines: dict[str, int] = {}
    for key_node, value_node in section.value:
        line = key_node.start_mark.line + 1
        key = prefix + str(loader.construct_object(key_node, deep=True))
        if key in lines:
            raise InvalidConfig(f"{path}:{line}: {key!r} stands twice; the first is on line {lines[key]}")
        lines[key] = line
        if key.count(".") > _MAX_SECTION_DEPTH:
            raise InvalidConfig(f"{path}:{line}: sections are nested too deep at {key!r}")
        if isinstance(value_node, yaml.MappingNode) and key not in whole:
            found += _flatten(loader, path, value_node, f"{key}.", whole)
        else:
            found.append((key, Located(_value(loader, path, value_node), f"{path}:{line}")))
    return found


def _value(loader: yaml.SafeLoader, path: str, node: yaml.Node) -> Any:
    _refuse_duplicates(loader, path, node, set())
    try:
        return loader.construct_object(node, deep=True)
    except ValueError as error:
        raise InvalidConfig(f"{path}:{node.start_mark.line + 1}: {error}; put the value in quotes") from None


def _refuse_duplicates(loader: yaml.SafeLoader, path: str, node: yaml.Node, seen: set[int]) -> None:
    """Walk a value; an alias is walked once, so a file that refers to itself ends, too."""
    if id(node) in seen or not isinstance(node, yaml.CollectionNode):
        return
    seen.add(id(node))
    keys: set[object] = set()
    for child in node.value:
        parts = child if isinstance(child, tuple) else (child,)
        if isinstance(child, tuple):
            key = str(loader.construct_object(parts[0], deep=True))
            if key in keys:
                line = parts[0].start_mark.line + 1
                raise InvalidConfig(f"{path}:{line}: {key!r} stands twice")
            keys.add(key)
        for part in parts:
            _refuse_duplicates(loader, path, part, seen)
