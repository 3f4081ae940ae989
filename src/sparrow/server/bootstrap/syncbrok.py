"""A configuration file of Syncbrok, used as it is: `sparrow serve --config config.yml`.

    Storage:                     Sparrow's data is in PATH/sparrow-data, beside Syncbrok's
      path: PATH
    Queues:                      each queue: parented, on a topic of its name, with one
      orders:                    subscriber for each URL
        urls: ["http://localhost:20000/"]

and the listener for clients of Syncbrok opens on port 10000. As in Syncbrok, keys are read in any
case and names of queues in lower case. Unlike Syncbrok, which ignores them, unknown keys are
refused.

A file is Syncbrok's if it has the keys `Storage`, `Handlers` (of its first version), or `Queues`
written so, or `queues` with nothing but `urls` in them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import InvalidConfig, SparrowError
from sparrow.base.faults import by_line, shown, suggestion
from sparrow.base.settings import Located
from sparrow.broker.webhooks.endpoint import SYNCBROK, new_settings

if TYPE_CHECKING:
    from sparrow.base.faults import Path
    from sparrow.base.yamlfile import YamlFile

PORT: Final = 10_000
DATA_DIRECTORY: Final = "sparrow-data"
_QUEUES, _STORAGE, _HANDLERS = "queues", "storage", "handlers"
_SECTIONS: Final = (_QUEUES, _STORAGE)


def is_syncbrok(file: YamlFile) -> bool:
    """Return True if the file is one of Syncbrok."""
    sections = set(file.sections)
    lowered = {each.lower() for each in sections}
    if lowered & {_STORAGE, _HANDLERS} or (_QUEUES in lowered and _QUEUES not in sections):
        return True
    return lowered == {_QUEUES} and _has_only_urls(file.flat([_QUEUES])[_QUEUES].value)


def _has_only_urls(queues: object) -> bool:
    """Return True if queues have `urls` and nothing else, which says something to Syncbrok and
    nothing to Sparrow.
    """
    entries = list(queues.values()) if isinstance(queues, dict) else []
    keys = {str(key).lower() for entry in entries if isinstance(entry, dict) for key in entry}
    return keys == {"urls"}


def translate(file: YamlFile) -> dict[str, Located]:
    """Translate Syncbrok's configuration into Sparrow's.

    Raises:
        InvalidConfig: names everything that is wrong, with its line.
    """
    return _Translation(file).options()


class _Translation:
    def __init__(self, file: YamlFile) -> None:
        self._file = file
        self._faults: list[str] = []

    def options(self) -> dict[str, Located]:
        found = self._file.flat(self._file.sections)
        self._faults += [fault for each in found.values() for fault in each.faults]
        sections: dict[str, Located] = {}
        for name, located in found.items():
            if name.lower() in sections:
                self._complain(
                    located, (), f"{name!r} occurs twice, if written in lower case as Syncbrok does"
                )
            elif name.lower() in _SECTIONS:
                sections[name.lower()] = located
            else:
                self._complain(located, (), _unknown(name))
        options = self._storage(sections.get(_STORAGE)) | self._queues(sections.get(_QUEUES))
        if self._faults:
            raise InvalidConfig("\n".join(by_line(self._faults)))
        return options | {"seeds.syncbrok.port": Located(PORT, f"{self._file.path}:1")}

    def _complain(self, located: Located, path: Path, text: str) -> None:
        self._faults.append(f"{located.location_of(path)}: {text}")

    def _lowered(self, located: Located, path: Path, value: object, what: str) -> dict[str, tuple[Path, Any]]:
        """Return path and value by the name in lower case."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._complain(located, path, f"{what}, not {shown(value)}")
            return {}
        found: dict[str, tuple[Path, Any]] = {}
        for name, inner in value.items():
            lowered = str(name).lower()
            if lowered in found:
                self._complain(
                    located, (*path, str(name)), f"{lowered!r} occurs twice: names are read in lower case"
                )
            found[lowered] = ((*path, str(name)), inner)
        return found

    def _storage(self, located: Located | None) -> dict[str, Located]:
        if located is None:
            return {}
        keys = self._lowered(located, (), located.value, "Storage is a mapping with a path")
        for name, (at, _) in keys.items():
            if name != "path":
                self._complain(located, at, f"Storage has no setting {name!r}{suggestion(name, ['path'])}")
        if "path" not in keys:
            return {}
        at, path = keys["path"]
        if not isinstance(path, str) or not path.strip():
            self._complain(located, at, f"Storage.path is the path of a directory, not {shown(path)}")
            return {}
        return {"data_dir": Located(os.path.join(path, DATA_DIRECTORY), located.location_of(at))}

    def _queues(self, located: Located | None) -> dict[str, Located]:
        if located is None:
            return {}
        value = located.value
        if isinstance(value, list) and all(isinstance(name, str) for name in value):
            value = dict.fromkeys(value)  # as in its first version
        queues = self._lowered(located, (), value, "Queues is a mapping of names, each with urls")
        from sparrow.frontends.seeds.syncbrok_queues import POLICY

        declared: dict[str, object] = {}
        lines: dict[Path, int] = {}
        for name, (at, inner) in queues.items():
            subscribers = self._subscribers(located, at, inner)
            queue = self._name(located, at, name)
            declared[queue] = {"policy": dict(POLICY), "partitions": 1, "subscribers": subscribers}
            lines[(queue,)] = int(located.location_of(at).rpartition(":")[2])
        return {"queues": Located(declared, located.location, lines)}

    def _name(self, located: Located, at: Path, name: str) -> str:
        from sparrow.frontends.seeds.names import topic_of

        try:
            return topic_of(name.encode())
        except (SparrowError, UnicodeError):
            self._complain(located, at, "a queue needs a name")
            return ""

    def _subscribers(self, located: Located, at: Path, queue: object) -> dict[str, object]:
        from sparrow.frontends.seeds.syncbrok_queues import ENDPOINT, subscriber_of

        keys = self._lowered(located, at, queue, "a queue is a mapping with urls")
        for name, (inner, _) in keys.items():
            if name != "urls":
                self._complain(located, inner, f"a queue has no setting {name!r}{suggestion(name, ['urls'])}")
        at, urls = keys.get("urls", (at, None))
        if isinstance(urls, str):
            urls = urls.split(",")  # as the original does
        found: dict[str, object] = {}
        for index, url in enumerate(urls if isinstance(urls, list) else [] if urls is None else [urls]):
            if self._is_good_url(located, (*at, index), url):
                found[subscriber_of(url)] = {**ENDPOINT, "url": url, "trusted": True}
        return found

    def _is_good_url(self, located: Located, at: Path, url: object) -> bool:
        try:
            new_settings({"url": url, "format": SYNCBROK})
        except SparrowError as error:
            self._complain(located, at, error.text)
            return False
        return True


def _unknown(name: str) -> str:
    if name.lower() == _HANDLERS:
        return (
            "Syncbrok's first version had Handlers; write the urls of each queue under Queues: "
            "{NAME: {urls: [URL]}}"
        )
    return (
        f"{name!r} is nothing that Syncbrok knows{suggestion(name.lower(), _SECTIONS)}. Its file "
        "has Storage and Queues only; to set more,"
        " write the file in Sparrow's words (docs/configuration.md), with small letters"
    )
