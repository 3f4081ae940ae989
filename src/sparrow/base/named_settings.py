"""Settings that people write by a word and programs by a name: those of queues and of webhooks.

Each is declared once, as a field of the frozen object that has the values. A `word` ("lease") is
what people write, a `name` ("lease_ms") has the unit: settings are stored, sent and shown by name.
Both are understood wherever settings are read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from sparrow.base.errors import InvalidConfig
from sparrow.base.faults import Misfit, shown, suggestion

if TYPE_CHECKING:
    from sparrow.base.settings import Kind

_SETTING: Final = "setting"


class Setting(Struct, frozen=True):
    """One declared setting."""

    name: str
    """Name in stored settings and on the wire; a duration's ends in `_ms`."""
    word: str
    """The word that people write: a key of the file, of Python's arguments and of HTTP, and the
    option `--word` of the command line.
    """
    kind: Kind[Any]
    default: Any
    help: str
    """Help of the option of the command line; "": there is none."""
    metavar: str

    @property
    def is_duration(self) -> bool:
        """True if the value is a number of milliseconds."""
        return self.name.endswith("_ms")

    def show(self, value: object) -> str:
        """Return a value as people write it: "30s", "none", "a, b"."""
        return self.kind.show(value)

    def read(self, key: str, value: object) -> Any:
        """Return a value as it is stored.

        Args:
            key: the setting's name in the caller's terms, for errors.

        Raises:
            InvalidConfig: the setting does not take it; says what it takes.
        """
        try:
            return self.kind.read(value)
        except Misfit as error:
            raise InvalidConfig(f"{key}{error.faults[0].text}") from None
        except ValueError as error:
            raise InvalidConfig(f"{key} is {shown(value)}; it is {error}") from None


def setting(
    kind: Kind[Any],
    default: Any = dataclasses.MISSING,
    *,
    word: str = "",
    help: str = "",  # noqa: A002 - what argparse and Typer call it, too
    metavar: str = "",
) -> Any:
    """Return a dataclass field that declares a setting. `word` "": it is the name."""
    declared = {"kind": kind, "word": word, "help": help, "metavar": metavar}
    return dataclasses.field(default=default, metadata={_SETTING: declared})


class SettingTable:
    """All settings of one thing.

    Args:
        noun: the thing, for errors: "a queue".
        configuration: the dataclass whose fields declare them.
        listed: what an error lists when a name is unknown; None: the words.
        none_is_default: True if a value None means the default.
        names_all: True if an error names every fault, else only the first.
    """

    def __init__(
        self,
        noun: str,
        configuration: type,
        *,
        listed: Sequence[str] | None = None,
        none_is_default: bool = False,
        names_all: bool = True,
    ) -> None:
        self.by_name: Final[Mapping[str, Setting]] = {
            each.name: _setting_of(each) for each in dataclasses.fields(configuration)
        }
        self.by_word: Final[Mapping[str, Setting]] = {each.word: each for each in self.by_name.values()}
        self._noun = noun
        self._listed: Collection[str] = self.by_word if listed is None else listed
        self._none_is_default = none_is_default
        self._names_all = names_all

    def find(self, key: str) -> Setting | None:
        """Return the setting of a word or a name, or None."""
        return self.by_word.get(key) or self.by_name.get(key)

    def known(self, key: str) -> Setting:
        """Return the setting of a word or a name.

        Raises:
            InvalidConfig: there is none; names a close one, or all.
        """
        found = self.find(key)
        if found is None:
            close = suggestion(key, dict.fromkeys([*self._listed, *self.by_word, *self.by_name]))
            raise InvalidConfig(
                f"{self._noun} has no setting {key!r}{close or '; there are ' + ', '.join(self._listed)}"
            )
        return found

    def read(self, given: Mapping[str, object]) -> dict[str, Any]:
        """Return checked settings by name, durations in milliseconds.

        Args:
            given: settings by word or name.

        Raises:
            InvalidConfig: names the settings that do not exist, have a wrong value, or are given
                twice.
        """
        values: dict[str, Any] = {}
        keys: dict[str, str] = {}
        faults: list[str] = []
        for key, value in given.items():
            found = self.find(key)
            if found is not None and found.name in keys:
                faults.append(f"{keys[found.name]!r} and {key!r} are one setting; give it once")
                continue
            try:
                found = self.known(key)
                keys[found.name] = key
                values[found.name] = self._value(found, key, value)
            except InvalidConfig as error:
                faults.append(error.text)
        if faults:
            raise InvalidConfig("; ".join(faults if self._names_all else faults[:1]))
        return values

    def _value(self, found: Setting, key: str, value: object) -> Any:
        if value is None and self._none_is_default and found.default is not dataclasses.MISSING:
            return found.default
        return found.read(key, value)


def _setting_of(each: dataclasses.Field[Any]) -> Setting:
    declared = dict(each.metadata[_SETTING])
    word = declared.pop("word") or each.name
    return Setting(each.name, word, default=each.default, **declared)
