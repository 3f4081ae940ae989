"""The configuration file as a map of options: Sparrow's own, or Syncbrok's, translated.

Files that declarations name (the secrets of a webhook, a pipeline) are looked for beside the
configuration file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from sparrow.base.yamlfile import YamlFile
from sparrow.server.bootstrap import syncbrok

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from sparrow.base.settings import Located


def read_config_file(path: str, keys: Collection[str]) -> dict[str, Located]:
    """Read dotted key → value with its location, as `base.settings.resolve` takes it.

    Args:
        keys: those of all options.

    Raises:
        InvalidConfig: the file cannot be read, or is a file of Syncbrok with mistakes in it.
    """
    file = YamlFile(path)
    if syncbrok.is_syncbrok(file):
        return syncbrok.translate(file)
    found = file.flat(keys)
    directory = os.path.dirname(path)
    for key, beside in (("queues", _queue_beside), ("pipelines", _pipeline_beside)):
        if key in found:
            value = _each(found[key].value, lambda entry, beside=beside: beside(entry, directory))  # type: ignore[misc]
            found[key] = replace(found[key], value=value)
    return found


def _queue_beside(queue: dict[Any, Any], directory: str) -> dict[Any, Any]:
    return {
        key: _each(value, lambda entry: _joined(entry, "secret_file", directory))
        if key in ("subscribers", "webhooks")
        else value
        for key, value in queue.items()
    }


def _pipeline_beside(pipeline: dict[Any, Any], directory: str) -> dict[Any, Any]:
    return _joined(pipeline, "file", directory)


def _each(declared: object, change: Callable[[dict[Any, Any]], dict[Any, Any]]) -> object:
    """Return the declarations with each mapping among them changed; other values stay for later
    checks.
    """
    if isinstance(declared, list):
        return [change(entry) if isinstance(entry, dict) else entry for entry in declared]
    if isinstance(declared, dict):
        return {name: change(entry) if isinstance(entry, dict) else entry for name, entry in declared.items()}
    return declared


def _joined(section: dict[Any, Any], key: str, directory: str) -> dict[Any, Any]:
    path = section.get(key)
    return {**section, key: os.path.join(directory, path)} if isinstance(path, str) and path else section
