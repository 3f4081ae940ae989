"""Objects as files in a directory, for one machine or a shared file system.

An object is written under a temporary name, synced, renamed, and its directory synced. (The
directories of obstore are not used: they sync nothing.)
"""

from __future__ import annotations

import asyncio
import os
import uuid
from typing import TYPE_CHECKING, Final, TypeVar

from sparrow.base.errors import InvalidConfig
from sparrow.cluster.errors import ObjectMissing, ObjectsUnavailable
from sparrow.cluster.objects import ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_UNFINISHED: Final = ".part"
T = TypeVar("T")


class DirectoryObjects:
    """`Objects` in a directory, which is made if it is missing.

    Raises:
        InvalidConfig: it cannot be made.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)
        try:
            os.makedirs(self._path, mode=0o700, exist_ok=True)
        except OSError as error:
            raise InvalidConfig(
                f"the directory {self._path} of cluster.objects cannot be made: {error.strerror}"
            ) from None

    @property
    def location(self) -> str:
        return f"file://{self._path}"

    async def put(self, key: str, parts: Sequence[bytes | memoryview]) -> None:
        await asyncio.to_thread(self._translated, self._put, key, parts)

    async def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        return await asyncio.to_thread(self._translated, self._get, key, start, length)

    async def delete(self, keys: Sequence[str]) -> None:
        await asyncio.to_thread(self._translated, self._delete, keys)

    async def find(self, prefix: str = "") -> list[ObjectInfo]:
        return await asyncio.to_thread(self._translated, self._list, prefix)

    def _translated(self, call: Callable[..., T], *arguments: object) -> T:
        try:
            return call(*arguments)
        except OSError as error:
            raise ObjectsUnavailable(
                f"{self._path}: {error.strerror or error}; check the device, it is tried again"
            ) from None

    def _put(self, key: str, parts: Sequence[bytes | memoryview]) -> None:
        path = os.path.join(self._path, key)
        directory = os.path.dirname(path)
        self._make(directory)
        unfinished = f"{path}.{uuid.uuid4().hex}{_UNFINISHED}"
        try:
            with open(unfinished, "xb") as file:
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
        except BaseException:
            if os.path.exists(unfinished):
                os.unlink(unfinished)
            raise
        _sync(directory)

    def _make(self, directory: str) -> None:
        """Make a directory, and those above it, durably."""
        if os.path.isdir(directory):
            return
        above = os.path.dirname(directory)
        self._make(above)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        _sync(above)

    def _get(self, key: str, start: int, length: int | None) -> bytes:
        try:
            with open(os.path.join(self._path, key), "rb") as file:
                file.seek(start)
                return file.read(-1 if length is None else length)
        except FileNotFoundError:
            raise ObjectMissing(f"{self.location} has no object {key}; restore it from a backup") from None

    def _delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            try:
                os.unlink(os.path.join(self._path, key))
            except FileNotFoundError:
                continue

    def _list(self, prefix: str) -> list[ObjectInfo]:
        found = []
        for directory, _, names in os.walk(self._path):
            for name in names:
                path = os.path.join(directory, name)
                key = os.path.relpath(path, self._path)
                if key.startswith(prefix) and not name.endswith(_UNFINISHED):
                    try:
                        found.append(ObjectInfo(key, os.stat(path).st_size))
                    except FileNotFoundError:  # deleted meanwhile
                        continue
        return sorted(found, key=lambda each: each.key)


def _sync(directory: str) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
