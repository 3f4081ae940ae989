"""Checks that every implementation of the seam makes: the size of names and values, a condition
that did not hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparrow.base.errors import ConditionFailed, InvalidArgument
from sparrow.meta.store import ABSENT, Put

if TYPE_CHECKING:
    from sparrow.meta.store import Write

MAX_VALUE_BYTES: Final = 16 << 20
MAX_NAME_BYTES: Final = 4096


def check_write(write: Write) -> int:
    """Return the size in bytes of a write's names and value.

    Raises:
        InvalidArgument: a name or value over its limit, or a name that is no Unicode text.
    """
    size = _name_bytes(write.kind) + _name_bytes(write.key)
    if not isinstance(write, Put):
        return size
    if len(write.value) > MAX_VALUE_BYTES:
        raise InvalidArgument(
            f"A value of {len(write.value)} bytes is too large; at most {MAX_VALUE_BYTES} are possible."
        )
    return size + len(write.value)


def condition_failed(write: Write) -> ConditionFailed:
    """Return the error of a write whose `if_version` did not hold."""
    expected = "not to exist" if write.if_version == ABSENT else f"to have version {write.if_version}"
    return ConditionFailed(
        f"{write.kind} {write.key!r} was expected {expected}, but it was changed meanwhile; read "
        "it again before you decide."
    )


def _name_bytes(name: str) -> int:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidArgument(f"{name!r} is no valid Unicode text.") from None
    if size > MAX_NAME_BYTES:
        raise InvalidArgument(f"A name of {size} bytes is too long; at most {MAX_NAME_BYTES} are possible.")
    return size
