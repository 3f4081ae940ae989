"""Locations, in the file, of faults that are found after the options were read."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from sparrow.base.errors import InvalidConfig
from sparrow.base.settings import options_of
from sparrow.server.bootstrap.files import read_config_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.base.settings import Located, Resolved

DEFAULT = "default"


class Locations:
    """Locations in one configuration; `file` None: there is none."""

    def __init__(self, file: str | None, resolved: Resolved) -> None:
        from sparrow.server.config import ServerConfig

        self._sources = resolved.sources
        self._file: dict[str, Located] = {}
        if file is not None and os.path.isfile(file):  # a pipe can be read only once
            with suppress(InvalidConfig):  # it changed meanwhile; the known locations suffice
                self._file = read_config_file(file, [each.key for each in options_of(ServerConfig)])
        self._name = file or "the configuration"

    def of(self, *option_names: str) -> str:
        """Return the location of the first of these options that was set."""
        set_at = (self._sources[name] for name in option_names if self._sources.get(name, DEFAULT) != DEFAULT)
        return next(set_at, self._name)

    def inside(self, key: str, *steps: Sequence[str | int]) -> str:
        """Return the location of a part of an option; each step is a name in a mapping or, if that
        is a list, an index.
        """
        located = self._file.get(key)
        if located is None or self._sources.get(key, "") != located.location:
            return self.of(key)
        path: tuple[str | int, ...] = ()
        for step in steps:
            path = next(((*path, part) for part in step if (*path, part) in located.lines), path)
        return located.location_of(path)
