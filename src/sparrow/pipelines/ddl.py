"""Schemas as Spark's DDL writes them ("id bigint NOT NULL, tags array<string>"), read without
Spark.

The parser accepts what `StructType.fromDDL` accepts, with its names of types and both ways to write
a field (`a int`, `a: int`), except char and varchar, which no DataFrame can have. A type is kept as
the text that sqlglot and Spark both know; types that sqlglot cannot compute with are kept as None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(\w+)|([<>(),:])|(\S))")
_PLAIN: dict[str, str | None] = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "byte": "TINYINT",
    "smallint": "SMALLINT",
    "short": "SMALLINT",
    "int": "INT",
    "integer": "INT",
    "bigint": "BIGINT",
    "long": "BIGINT",
    "float": "FLOAT",
    "real": "FLOAT",
    "double": "DOUBLE",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamp_ltz": "TIMESTAMP",
    "timestamp_ntz": "TIMESTAMP_NTZ",
    "string": "STRING",
    "binary": "BINARY",
    "void": None,
    "variant": None,
    "time": None,
}
_SIZED = ("char", "character", "varchar")
_DECIMALS = ("decimal", "dec", "numeric")
_INTERVAL_UNITS = ("year", "month", "day", "hour", "minute", "second")
_MAX_DEPTH = 100
_MAX_PRECISION = 38
TYPES = (*_PLAIN, *_DECIMALS, "interval", "array", "map", "struct")


@dataclass(frozen=True, slots=True)
class Field:
    """A column. `type` is None if sqlglot cannot compute with it; `is_nullable` false: NOT NULL."""

    name: str
    type: str | None
    is_nullable: bool = True


def parse_schema(text: str) -> tuple[Field, ...]:
    """Parse the columns of a schema.

    Raises:
        ValueError: every fault of the schema.
    """
    reader = _Reader(text)
    fields: tuple[Field, ...] = ()
    with reader:
        if reader.word() == "struct" and reader.peek(1) == "<":
            reader.take()
            fields = reader.struct()
        else:
            fields = reader.fields("")
    return fields


def parse_type(text: str) -> str | None:
    """Parse one type. Return None if sqlglot cannot compute with it.

    Raises:
        ValueError: every fault of the type.
    """
    with _Reader(text) as reader:
        return reader.type()


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens = [found.group().strip() for found in _TOKEN.finditer(text)]
        self._at = 0
        self._depth = 0
        self._wrong: list[str] = []
        """Faults so far of single columns and types; the parser continues after them."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise ValueError with all faults. An error that ended the parsing is the last of them."""
        if error is None and self.peek():
            self._wrong.append(f"{self.peek()!r} is not understood; a column is a name and a type")
        elif isinstance(error, ValueError):
            self._wrong.append(str(error))
        elif error is not None:
            return
        if self._wrong:
            raise ValueError("; ".join(dict.fromkeys(self._wrong))) from None

    def peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else ""

    def word(self) -> str:
        return self.peek().lower()

    def take(self) -> str:
        token = self.peek()
        self._at += 1
        return token

    def expect(self, token: str, after: str) -> None:
        if self.take() != token:
            self._at -= 1
            raise ValueError(f"{token!r} is missing after {after}{self._here()}")

    def _here(self) -> str:
        return f", before {self.peek()!r}" if self.peek() else ""

    def fields(self, end: str) -> tuple[Field, ...]:
        """Parse fields up to a closing token, which is not consumed, or the end of the text."""
        found = [self._field()]
        while self.peek() == ",":
            self.take()
            found.append(self._field())
        names: set[str] = set()
        for each in found:
            if each.name.lower() in names:
                self._wrong.append(
                    f"the column {each.name!r} occurs twice; to Spark, case makes no difference"
                )
            names.add(each.name.lower())
        if end and self.peek() != end:
            raise ValueError(f"{end!r} is missing after the fields of a struct{self._here()}")
        return tuple(found)

    def _field(self) -> Field:
        token = self.take()
        if token.startswith("`") and len(token) > 2:
            name = token[1:-1].replace("``", "`")
        elif re.fullmatch(r"\w+", token):
            name = token
        else:
            raise ValueError(f"a column's name is missing{self._before(token)}")
        if self.peek() == ":":
            self.take()
        if self.peek() in ("", ",", ">"):
            self._wrong.append(f"the column {name!r} has no type")
            return Field(name, None, True)
        kind = self.type()
        return Field(name, kind, not self._is_not_null())

    def _before(self, token: str) -> str:
        if not token:
            return ""
        hint = "" if token in tuple(",<>():") else "; put a name with other characters in backquotes"
        return f" before {token!r}{hint}"

    def _is_not_null(self) -> bool:
        is_required = False
        if self.word() == "not":
            self.take()
            if self.take().lower() != "null":
                raise ValueError("NULL is missing after NOT")
            is_required = True
        if self.word() == "comment":
            self.take()
            if self.take()[:1] not in ("'", '"'):
                raise ValueError("a text in quotes is missing after COMMENT")
        return is_required

    def type(self) -> str | None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError(f"types are nested deeper than {_MAX_DEPTH}")
        found = self._type()
        self._depth -= 1
        return found

    def _type(self) -> str | None:
        token = self.take()
        word = token.lower()
        if word in _PLAIN:
            return self._plain(word)
        if word in _SIZED:
            raise ValueError(f"the type {word!r} is for tables of a catalog; say string")
        if word in _DECIMALS:
            return self._decimal()
        if word == "interval":
            self._interval()
            return None
        if word in ("array", "map", "struct"):
            return self._nested(word)
        from sparrow.base.faults import suggestion

        if not word.isidentifier():
            raise ValueError(f"there is no type {token!r}")
        self._wrong.append(f"there is no type {token!r}{suggestion(word, TYPES)}")
        self._skip_brackets()
        return None

    def _skip_brackets(self) -> None:
        """Skip the brackets behind the name of an unknown type."""
        depth = 0
        while self.peek() in ("<", "(") or (depth and self.peek()):
            token = self.take()
            depth += (token in ("<", "(")) - (token in (">", ")"))
            if depth == 0:
                return

    def _plain(self, word: str) -> str | None:
        if word == "string" and self.word() == "collate":
            self.take()
            self.take()
        if word == "time" and self.peek() == "(":
            self._numbers(word, 1)
        return _PLAIN[word]

    def _numbers(self, word: str, most: int) -> list[int]:
        """Parse numbers in parentheses."""
        self.expect("(", f"the type {word!r}")
        numbers = []
        while True:
            token = self.take()
            if not token.isdecimal() or len(token) > 10:
                raise ValueError(f"a number is missing in the parentheses after {word!r}")
            numbers.append(int(token))
            if self.peek() != "," or len(numbers) == most:
                break
            self.take()
        self.expect(")", f"the numbers of {word!r}")
        return numbers

    def _decimal(self) -> str:
        precision, scale = 10, 0
        if self.peek() == "(":
            precision, scale = (*self._numbers("decimal", 2), 0)[:2]
        if not scale <= precision <= _MAX_PRECISION or precision == 0:
            raise ValueError(
                f"decimal({precision},{scale}): there are at most {_MAX_PRECISION} digits, of "
                "which the scale is a part"
            )
        return f"DECIMAL({precision}, {scale})"

    def _interval(self) -> None:
        if self.word() in _INTERVAL_UNITS:
            self.take()
            if self.word() == "to":
                self.take()
                if self.take().lower() not in _INTERVAL_UNITS:
                    raise ValueError("a unit is missing after TO in an interval")

    def _nested(self, word: str) -> str | None:
        if word == "struct":
            fields = self.struct()
            if any(each.type is None for each in fields):
                return None
            return f"STRUCT<{', '.join(f'`{each.name}`: {each.type}' for each in fields)}>"
        self.expect("<", f"the type {word!r}")
        inner = [self.type()]
        if word == "map":
            self.expect(",", "the type of a map's keys")
            inner.append(self.type())
        self.expect(">", f"what is in the {word}")
        known = [each for each in inner if each is not None]
        return f"{word.upper()}<{', '.join(known)}>" if len(known) == len(inner) else None

    def struct(self) -> tuple[Field, ...]:
        self.expect("<", "the type 'struct'")
        if self.peek() == ">":
            self.take()
            return ()
        fields = self.fields(">")
        self.take()
        return fields
