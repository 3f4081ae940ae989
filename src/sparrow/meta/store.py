"""The seam of the meta store: small entries that must survive.

An entry is a value under (kind, key): kind is a short word ("topic", "offset", "user", …), key a
string, value bytes that only its owner understands. Entries are written in batches; each batch
happens whole or not at all and is on stable storage when the call returns. Each write of a key
raises its version, so that a batch may be conditional (`if_version`): leases and compare-and-set
need nothing else.

The broker keeps its state in memory and reads the store at start only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.base.histogram import Histogram

ANY = -1
"""`if_version`: write unconditionally."""
ABSENT = 0
"""`if_version`: write only if the key does not exist."""


class Entry(Struct, frozen=True):
    """A stored value. `version` starts at 1 and grows with each write of the key."""

    kind: str
    key: str
    value: bytes
    version: int


class Put(Struct, frozen=True):
    """A write of `value`; with `if_version` only if the key has just this version (0: does not
    exist).
    """

    kind: str
    key: str
    value: bytes
    if_version: int = ANY


class Delete(Struct, frozen=True):
    """The removal of a key; a missing key is no error unless `if_version` says so."""

    kind: str
    key: str
    if_version: int = ANY


Write = Put | Delete


class MetaStore(Protocol):
    """A meta store. Implementations pass the suite in `tests/conformance/meta_store.py`."""

    async def write(self, writes: Sequence[Write]) -> None:
        """Apply all writes or none; durable when it returns. Calls that wait at the same time share
        one commit, in order.

        Raises:
            ConditionFailed: an `if_version` did not hold; nothing of this batch was written, other
                batches are not affected.
            DiskFull: no space; nothing was written, the store stays readable.
            StorageFailed: the database failed.
        """
        ...

    async def get(self, kind: str, key: str) -> Entry | None:
        """Return the entry, or None."""
        ...

    async def scan(self, kind: str, prefix: str = "") -> list[Entry]:
        """Return all entries of a kind whose key starts with `prefix`, by key."""
        ...

    @property
    def commit_times(self) -> Histogram:
        """Durations of the commits in seconds, one for each group of writes that shared a
        commit.
        """
        ...

    async def close(self) -> None:
        """Finish the requested work, then release the files."""
        ...
