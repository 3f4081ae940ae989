"""Everything that is wrong with the input of a request, by the type that it should have.

msgspec decodes bodies quickly and reports the first fault. Only when it refuses one, `check` walks
over the value and lists every fault with its position, so that a client can mend them all at once.
It is also the way from texts of addresses to values: `lax` accepts a number or a flag as text.

It accepts a little more than msgspec (NaN, spaces around a partition number), so its result, and
not msgspec's refusal, decides.
"""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import inspect as types

from sparrow.frontends.admin.fields import CHOICES, SECRET

if TYPE_CHECKING:
    from collections.abc import Callable

Faults = list[tuple[str, str]]
"""(part, fault) of each."""

_INTEGER: Final = re.compile(r"\s*([+-]?[0-9]+(?:_[0-9]+)*)(?:\.0+)?\s*")
_NOT_UNICODE: Final = "Input should be a valid string, unable to parse raw data as a unicode string"
_MAX_DIGITS: Final = 4300
_TRUE: Final = frozenset({"1", "on", "t", "true", "y", "yes"})
_FALSE: Final = frozenset({"0", "off", "f", "false", "n", "no"})
_LIMITS: Final = (
    ("le", "less than or equal to", operator.le),
    ("lt", "less than", operator.lt),
    ("ge", "greater than or equal to", operator.ge),
    ("gt", "greater than", operator.gt),
)


def check(kind: types.Type, value: Any, where: str, faults: Faults, *, lax: bool = False) -> Any:
    """Return a value as `msgspec.convert` takes it, and add its faults to `faults`.

    Args:
        where: position in the request, such as `body.name`.
        lax: numbers and flags may be texts.
    """
    if isinstance(kind, types.Metadata):
        extra, kind = kind.extra or {}, kind.type
        if SECRET in extra:
            return _secret(kind, value, where, faults)
        if CHOICES in extra:
            return _choice(extra[CHOICES], value, where, faults)
    return _CHECKS[type(kind)](kind, value, where, faults, lax)


def _text(kind: Any, value: Any, where: str, faults: Faults, _: bool) -> Any:
    if not isinstance(value, str):
        faults.append((where, "Input should be a valid string"))
    elif not _is_unicode(value):
        faults.append((where, _NOT_UNICODE))
    elif kind.max_length is not None and len(value) > kind.max_length:
        faults.append((where, f"String should have at most {_count(kind.max_length, 'character')}"))
    elif kind.min_length is not None and len(value) < kind.min_length:
        faults.append((where, f"String should have at least {_count(kind.min_length, 'character')}"))
    return value


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _secret(kind: Any, value: Any, where: str, faults: Faults) -> Any:
    if not isinstance(value, str):
        faults.append((where, "Input should be a valid string"))
    elif not kind.min_length <= len(value) <= kind.max_length:
        _add_count(kind, "Value", len(value), where, faults)
    else:
        try:
            value.encode()
        except UnicodeEncodeError as error:
            faults.append((where, f"Value error, {error}"))
    return value


def _integer(kind: Any, value: Any, where: str, faults: Faults, lax: bool) -> Any:
    if lax and isinstance(value, str):
        if len(value) > _MAX_DIGITS:
            faults.append((where, "Unable to parse input string as an integer, exceeded maximum size"))
            return value
        found = _INTEGER.fullmatch(value)
        if found is None:
            faults.append((where, "Input should be a valid integer, unable to parse string as an integer"))
            return value
        value = int(found[1])
    if type(value) is not int:
        faults.append((where, "Input should be a valid integer"))
    else:
        _check_limits(kind, value, where, faults)
    return value


def _number(kind: Any, value: Any, where: str, faults: Faults, _: bool) -> Any:
    if type(value) not in (int, float) or not _is_in_range(value):
        faults.append((where, "Input should be a valid number"))
    else:
        _check_limits(kind, value, where, faults)
    return value


def _is_in_range(value: float) -> bool:
    try:
        float(value)
    except OverflowError:
        return False
    return True


def _check_limits(kind: Any, value: float, where: str, faults: Faults) -> None:
    for name, words, is_within in _LIMITS:
        limit = getattr(kind, name)
        if limit is not None and not is_within(value, limit):
            faults.append((where, f"Input should be {words} {int(limit)}"))
            return


def _flag(_: Any, value: Any, where: str, faults: Faults, lax: bool) -> Any:
    if lax and isinstance(value, str):
        text = value.lower()
        if text not in _TRUE | _FALSE:
            faults.append((where, "Input should be a valid boolean, unable to interpret input"))
        return text in _TRUE
    if not isinstance(value, bool):
        faults.append((where, "Input should be a valid boolean"))
    return value


def _choice(choices: tuple[str, ...], value: Any, where: str, faults: Faults) -> Any:
    if value not in choices:
        *first, last = map(repr, choices)
        faults.append((where, f"Input should be {', '.join(first)} or {last}"))
    return value


def _list(kind: Any, value: Any, where: str, faults: Faults, _: bool) -> Any:
    if not isinstance(value, list):
        faults.append((where, "Input should be a valid list"))
        return value
    if kind.max_length is not None and len(value) > kind.max_length:
        _add_count(kind, "List", len(value), where, faults)
        return value
    before = len(faults)
    checked = [check(kind.item_type, each, f"{where}.{index}", faults) for index, each in enumerate(value)]
    if len(faults) == before and kind.min_length is not None and len(value) < kind.min_length:
        _add_count(kind, "List", len(value), where, faults)
    return checked


def _object(kind: Any, value: Any, where: str, faults: Faults, _: bool) -> Any:
    if not isinstance(value, dict):
        faults.append((where, "Input should be a valid dictionary"))
        return value
    if kind.max_length is not None and len(value) > kind.max_length:
        _add_count(kind, "Dictionary", "more", where, faults)
        return value
    return {
        check(kind.key_type, name, f"{where}.{name}.[key]", faults, lax=True): check(
            kind.value_type, each, f"{where}.{name}", faults
        )
        for name, each in value.items()
    }


def _struct(kind: Any, value: Any, where: str, faults: Faults, lax: bool) -> Any:
    if not isinstance(value, dict):
        faults.append((where, "Input should be a valid dictionary or object to extract fields from"))
        return value
    if not all(map(_is_unicode, value)):
        faults.append((where, _NOT_UNICODE))
        return value
    checked = {}
    for field in kind.fields:
        name = field.encode_name
        if name in value:
            checked[name] = check(field.type, value[name], f"{where}.{name}", faults, lax=lax)
        elif field.required:
            faults.append((f"{where}.{name}", "Field required"))
    if kind.forbid_unknown_fields:
        known = {field.encode_name for field in kind.fields}
        faults += [
            (f"{where}.{name}", "Extra inputs are not permitted") for name in value if name not in known
        ]
    return checked


def _union(kind: Any, value: Any, where: str, faults: Faults, lax: bool) -> Any:
    """Check a value that may have one of several types. A number out of range has one fault, of
    which the types are no part; another value has the faults of each type.
    """
    members = [each for each in kind.types if not isinstance(each, types.NoneType)]
    if value is None and len(members) < len(kind.types):
        return value
    if len(members) == 1:
        return check(members[0], value, where, faults, lax=lax)
    found: Faults = []
    for each in members:
        own: Faults = []
        checked = check(each, value, f"{where}.{_tag(each)}", own, lax=lax)
        if not own:
            return checked
        if type(value) in _PLAIN.get(type(each), ()):
            found = [(where, own[0][1])]
            break
        found += own
    faults += found
    return value


def _tag(kind: Any) -> str:
    if isinstance(kind, types.StrType):
        return "str" if kind.max_length is None else "constrained-str"
    return {types.IntType: "int", types.FloatType: "float", types.BoolType: "bool"}[type(kind)]


def _anything(_: Any, value: Any, where: str, faults: Faults, lax: bool) -> Any:  # noqa: ARG001 - as the others
    return value


def _add_count(kind: Any, what: str, count: object, where: str, faults: Faults) -> None:
    is_short = isinstance(count, int) and kind.min_length is not None and count < kind.min_length
    limit = (
        f"least {_count(kind.min_length, 'item')}" if is_short else f"most {_count(kind.max_length, 'item')}"
    )
    faults.append((where, f"{what} should have at {limit} after validation, not {count}"))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_PLAIN: Final[dict[type, tuple[type, ...]]] = {types.IntType: (int,), types.FloatType: (float,)}
_CHECKS: Final[dict[type, Callable[[Any, Any, str, Faults, bool], Any]]] = {
    types.AnyType: _anything,
    types.StrType: _text,
    types.IntType: _integer,
    types.FloatType: _number,
    types.BoolType: _flag,
    types.ListType: _list,
    types.DictType: _object,
    types.StructType: _struct,
    types.UnionType: _union,
}
