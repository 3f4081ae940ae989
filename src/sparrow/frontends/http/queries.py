"""The parameters of an address, each read by its kind; what cannot be read is refused with a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from sparrow.base.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

_FLAGS = {"true": True, "1": True, "": True, "false": False, "0": False}
MAX_PARAMETERS = 100
_MAX_DIGITS = 20


class Query:
    """The parameters of one request.

    Raises:
        InvalidArgument: a parameter stands twice.
    """

    __slots__ = ("_known", "_values")

    def __init__(self, request: Request) -> None:
        raw: bytes = request.scope["query_string"]
        self._known: set[str] = set()
        self._values: dict[str, str] = {}
        if raw:
            self._read(raw)

    def _read(self, raw: bytes) -> None:
        try:
            pairs = parse_qsl(
                raw.decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_PARAMETERS, errors="strict"
            )
        except ValueError:
            raise InvalidArgument(
                f"the parameters of the address cannot be read; they are UTF-8, and at most {MAX_PARAMETERS}"
            ) from None
        for name, value in pairs:
            if name in self._values:
                raise InvalidArgument(f"the parameter {name!r} stands twice; give it once")
            self._values[name] = value

    def text(self, name: str, default: str = "") -> str:
        self._known.add(name)
        return self._values.get(name, default)

    def integer(self, name: str, default: int, least: int, most: int) -> int:
        """
        Raises:
            InvalidArgument: no whole number, or not from `least` to `most`.
        """
        self._known.add(name)
        text = self._values.get(name)
        if text is None:
            return default
        number = maybe_integer(text)
        if number is None or not least <= number <= most:
            raise InvalidArgument(f"{name} is {text!r}; it is a whole number from {least} to {most}")
        return number

    def choice(self, name: str, default: str, choices: Sequence[str]) -> str:
        """
        Raises:
            InvalidArgument: none of the choices.
        """
        value = self.text(name, default)
        if value not in choices:
            raise InvalidArgument(f"{name} is {value!r}; it is one of {', '.join(choices)}")
        return value

    def flag(self, name: str) -> bool:
        """Whether it is said and not false.

        Raises:
            InvalidArgument: neither true nor false.
        """
        value = self.text(name, "false")
        if value not in _FLAGS:
            raise InvalidArgument(f"{name} is {value!r}; it is true or false")
        return _FLAGS[value]

    def refuse_others(self) -> None:
        """
        Raises:
            InvalidArgument: a parameter that nobody asked for: likely a mistake in its name.
        """
        others = sorted(self._values.keys() - self._known)
        if others:
            known = ", ".join(sorted(self._known)) or "none"
            raise InvalidArgument(f"there is no parameter {others[0]!r} here; there are: {known}")


def maybe_integer(text: str) -> int | None:
    """The whole number that the text is, written in digits; None if it is none."""
    digits = text.removeprefix("-")
    if len(digits) > _MAX_DIGITS or not (digits.isascii() and digits.isdigit()):
        return None
    return int(text)
