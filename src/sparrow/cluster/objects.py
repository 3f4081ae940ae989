"""The seam of the object store: immutable bytes under unique keys.

It is never a commit point: an object that the ledger does not name does not exist. So nothing is
asked of it but that a put which returned is on stable storage and can be read everywhere.

Invariants that every implementation keeps (`tests/conformance/objects.py`):

* `put` of the same bytes under the same key may be repeated, at any time, with the same result;
* a put that failed may have happened, or happen later; nobody reads such a key, unless a repeated
  put of it succeeds;
* a read after a put that returned gives these bytes; a part is never returned as the whole;
* deleting what is not there is no error.

`remote.RemoteObjects` reaches S3, GCS and Azure, `directory.DirectoryObjects` keeps files,
`objects_model.MemoryObjects` is the public fake. `object_stores` chooses by the URL.

Concurrency: all methods may be called from any event loop, side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """A listed object."""

    key: str
    size_bytes: int


class Objects(Protocol):
    """An object store, below a prefix. Keys are relative to it, with `/` between their parts."""

    @property
    def location(self) -> str:
        """The place of the objects for people, without secrets."""
        ...

    async def put(self, key: str, parts: Sequence[bytes | memoryview]) -> None:
        """Store an object of these parts, one after the other.

        Raises:
            ObjectsUnavailable: it may have been stored; repeat it with the same bytes.
        """
        ...

    async def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Return `length` bytes from `start` on; None: all to the end. Fewer if the object ends.

        Raises:
            ObjectMissing, ObjectsUnavailable
        """
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects.

        Raises:
            ObjectsUnavailable: some may have been deleted.
        """
        ...

    async def find(self, prefix: str = "") -> list[ObjectInfo]:
        """Return all objects whose key starts with `prefix`, by key.

        Raises:
            ObjectsUnavailable
        """
        ...
