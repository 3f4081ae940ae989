"""Query parameters. Each is declared once: handlers read it by its declaration, and the OpenAPI
document shows it. Errors say what is accepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from urllib.parse import parse_qsl

from msgspec import Struct

from sparrow.base.errors import InvalidArgument

if TYPE_CHECKING:
    from sparrow.frontends.http.limits import HttpLimits
    from sparrow.frontends.http.request import Request

T = TypeVar("T", bound=str)

_MAX_PARTITION: Final = (1 << 31) - 1
_UNLIMITED: Final = (1 << 62) - 1
_FLAGS = {"true": True, "1": True, "": True, "false": False, "0": False}
MAX_PARAMETERS = 100
_MAX_DIGITS = 20


class _Declared(Struct, frozen=True):
    """A parameter: its name, and a text for people. `schema` is for the OpenAPI document."""

    name: str
    text: str


class Text(_Declared, frozen=True):
    """A parameter that is a text. The broker checks the limit of its length; 0: it has none."""

    default: str = ""
    max_characters: int = 0

    def schema(self) -> dict[str, Any]:
        limit = {"maxLength": self.max_characters} if self.max_characters else {}
        return {"type": "string", **limit, **({"default": self.default} if self.default else {})}


class WholeNumber(_Declared, frozen=True):
    """A parameter that is a whole number from `least` to `most`; a default below is none."""

    default: int
    least: int
    most: int = _UNLIMITED

    def schema(self) -> dict[str, Any]:
        default = {"default": self.default} if self.default >= self.least else {}
        most = {"maximum": self.most} if self.most < _UNLIMITED else {}
        return {"type": "integer", **default, "minimum": self.least, **most}


class Choice(_Declared, Generic[T], frozen=True):
    """A parameter that is one of several words; the first one is the default."""

    choices: tuple[T, ...]

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.choices), "default": self.choices[0]}


class Flag(_Declared, frozen=True):
    """A parameter that is true or false, and false without it."""

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean", "default": False}


Parameter = Text | WholeNumber | Choice[Any] | Flag

BASE64: Final = "base64"
COMMITTED: Final = "committed"
PARTITION: Final = WholeNumber("partition", "Only this partition.", -1, 0, _MAX_PARTITION)
ENCODING: Final = Choice(
    "encoding", "`base64`: keys, values and headers in base64 throughout.", ("text", BASE64)
)
ISOLATION: Final = Choice(
    "isolation",
    "`committed`: without records of transactions that are open or were aborted.",
    ("uncommitted", COMMITTED),
)


def wait_parameter(limits: HttpLimits) -> WholeNumber:
    """Return the parameter of requests that wait for messages."""
    return WholeNumber("wait_ms", "Time to wait for a message if there is none.", 0, 0, limits.max_wait_ms)


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

    def value(self, parameter: Text) -> str:
        return self.text(parameter.name, parameter.default)

    def integer(self, parameter: WholeNumber) -> int:
        """Return a whole number.

        Raises:
            InvalidArgument: not a whole number from `least` to `most`.
        """
        name = parameter.name
        self._known.add(name)
        text = self._values.get(name)
        if text is None:
            return parameter.default
        number = maybe_integer(text)
        if number is None or not parameter.least <= number <= parameter.most:
            raise InvalidArgument(
                f"{name} is {text!r}; it must be a whole number from {parameter.least} to {parameter.most}"
            )
        return number

    def choice(self, parameter: Choice[T]) -> T:
        """Return one of the choices.

        Raises:
            InvalidArgument: the value is not among the choices.
        """
        choices = parameter.choices
        value = self.text(parameter.name, choices[0])
        for each in choices:
            if value == each:
                return each
        raise InvalidArgument(f"{parameter.name} is {value!r}; it must be one of {', '.join(choices)}")

    def flag(self, parameter: Flag) -> bool:
        """Return True if the flag is given and not false.

        Raises:
            InvalidArgument: neither true nor false.
        """
        value = self.text(parameter.name, "false")
        if value not in _FLAGS:
            raise InvalidArgument(f"{parameter.name} is {value!r}; it must be true or false")
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
