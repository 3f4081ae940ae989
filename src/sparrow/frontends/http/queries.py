"""Query parameters, parsed by type; errors say what is accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qsl

from sparrow.base.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.frontends.http.request import Request

T = TypeVar("T", bound=str)

_FLAGS = {"true": True, "1": True, "": True, "false": False, "0": False}
MAX_PARAMETERS = 100
_MAX_DIGITS = 20


class Query:
    """The query parameters of one request.

    Raises:
        InvalidArgument: a parameter is given twice.
    """

    __slots__ = ("_known", "_values")

    def __init__(self, request: Request) -> None:
        self._known: set[str] = set()
        self._values: dict[str, str] = {}
        if request.query:
            self._read(request.query)

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
                raise InvalidArgument(f"the parameter {name!r} is given twice; give it once")
            self._values[name] = value

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str, default: str = "") -> str:
        self._known.add(name)
        return self._values.get(name, default)

    def integer(self, name: str, default: int, least: int, most: int) -> int:
        """Return a whole number.

        Raises:
            InvalidArgument: not a whole number from `least` to `most`.
        """
        self._known.add(name)
        text = self._values.get(name)
        if text is None:
            return default
        number = maybe_integer(text)
        if number is None or not least <= number <= most:
            raise InvalidArgument(f"{name} is {text!r}; it must be a whole number from {least} to {most}")
        return number

    def choice(self, name: str, default: T, choices: Sequence[T]) -> T:
        """Return one of the choices.

        Raises:
            InvalidArgument: the value is not among the choices.
        """
        value = self.text(name, default)
        for each in choices:
            if value == each:
                return each
        raise InvalidArgument(f"{name} is {value!r}; it must be one of {', '.join(choices)}")

    def flag(self, name: str) -> bool:
        """Return True if the flag is given and not false.

        Raises:
            InvalidArgument: neither true nor false.
        """
        value = self.text(name, "false")
        if value not in _FLAGS:
            raise InvalidArgument(f"{name} is {value!r}; it must be true or false")
        return _FLAGS[value]

    def refuse_others(self) -> None:
        """Refuse parameters that the route does not know, which are probably misspelt.

        Raises:
            InvalidArgument
        """
        others = sorted(self._values.keys() - self._known)
        if others:
            known = ", ".join(sorted(self._known)) or "none"
            raise InvalidArgument(f"unknown parameter {others[0]!r}; this route has: {known}")


def maybe_integer(text: str) -> int | None:
    """Parse a whole number in digits; None if the text is not one."""
    digits = text.removeprefix("-")
    if len(digits) > _MAX_DIGITS or not (digits.isascii() and digits.isdigit()):
        return None
    return int(text)
