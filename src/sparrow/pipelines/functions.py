"""Location of a Python step's function, found without importing it: a step's code runs when the
pipeline runs, not when it is checked.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import sys

from sparrow.base.faults import suggestion


def fault_of_function(reference: str, directory: str) -> str:
    """Return the fault of "module:function" or "/path/file.py:function", or "" if none is known.

    Args:
        directory: where modules are looked for before Python's path.
    """
    source, _, name = reference.rpartition(":")
    if not source or not name.isidentifier():
        return f"{reference!r} names no function; it takes module:function or file.py:function"
    if not source.endswith(".py") and not all(part.isidentifier() for part in source.split(".")):
        return f"{source!r} is no name of a module; it takes module:function or file.py:function"
    try:
        path = source if source.endswith(".py") else _file_of(source, directory)
    except LookupError as error:
        return str(error.args[0])
    return _fault_in_file(path, name) if path.endswith(".py") else ""


def _file_of(module: str, directory: str) -> str:
    """Return the file of a module, or "" if it has none.

    Raises:
        LookupError: there is no such module; names the missing part.
    """
    where: list[str] | None = [directory, *sys.path]
    parts = module.split(".")
    spec: importlib.machinery.ModuleSpec | None = None
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        if where is None:
            raise LookupError(f"there is no module {name!r}: {'.'.join(parts[: count - 1])!r} is no package")
        spec = importlib.machinery.PathFinder.find_spec(name, where) or _other_spec(name, count)
        if spec is None:
            raise LookupError(
                f"there is no module {name!r}; modules are looked for beside the file and on Python's path"
            )
        found = spec.submodule_search_locations
        where = None if found is None else list(found)
    return (spec.origin or "") if spec is not None else ""


def _other_spec(name: str, count: int) -> importlib.machinery.ModuleSpec | None:
    """Return the spec of a built-in module or of one that another finder knows. Only top-level
    names are asked for, because the parent of a submodule would be imported.
    """
    return importlib.util.find_spec(name) if count == 1 else None


def _fault_in_file(path: str, name: str) -> str:
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read(), path)
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        return f"{path} is not Python: {getattr(error, 'msg', error)}{f' (line {line})' if line else ''}"
    names = _defined(tree)
    if name in names or "*" in names or "__getattr__" in names:
        return ""
    functions = [each.name for each in tree.body if isinstance(each, ast.FunctionDef)]
    return f"{path} has no function {name!r}{suggestion(name, functions)}"


def _defined(tree: ast.Module) -> set[str]:
    """Return the names that a module defines, of any kind; "*" means that there may be others."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.alias(name=name, asname=other):
                found.add(other or name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
    return found
