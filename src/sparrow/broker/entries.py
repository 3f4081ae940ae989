"""Values of entries of the meta store: reading them, and the errors of those that are wrong."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from sparrow.base.errors import BadInput, DirectoryUnreadable, NewerFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparrow.meta.store import Entry


class Versioned(Protocol):
    """A value whose first field is its format version."""

    version: int


V = TypeVar("V", bound=Versioned)


def read(entry: Entry, decode: Callable[[bytes], V], newest: int) -> V:
    """Return the value of an entry.

    Args:
        newest: the latest format version that this Sparrow knows.

    Raises:
        DirectoryUnreadable, NewerFormat
    """
    with readable(entry):
        value = decode(entry.value)
    check_version(entry, value.version, newest)
    return value


@contextmanager
def readable(entry: Entry) -> Iterator[None]:
    """Raise DirectoryUnreadable for an error in the body that shows that the entry has a wrong
    value.
    """
    try:
        yield
    except (msgspec.DecodeError, ValueError, BadInput) as error:
        raise unreadable(entry, str(error)) from error


def check_version(entry: Entry, version: int, newest: int) -> None:
    """Raise NewerFormat if a later Sparrow wrote the entry."""
    if version > newest:
        raise NewerFormat(
            f"the {entry.kind} {entry.key!r} was written by a later Sparrow (format {version}, known is "
            f"{newest}); start that version, or a later one"
        )


def unreadable(entry: Entry, why: str) -> DirectoryUnreadable:
    """Return the error of an entry that cannot be read."""
    return DirectoryUnreadable(
        f"the {entry.kind} {entry.key!r} of the meta store cannot be read: {why}; restore the data "
        "directory from a backup"
    )
