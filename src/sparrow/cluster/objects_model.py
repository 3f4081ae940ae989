"""The public fake of the object store: the same contract in memory, with faults by seed.

    objects = MemoryObjects(faults=ObjectFaults(seed=7, stored_but_error=0.1))

Pass `content` to a second store for another node on the same bucket.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparrow.cluster.errors import ObjectMissing, ObjectsUnavailable
from sparrow.cluster.objects import ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class ObjectFaults:
    """Probabilities (0.0 to 1.0) of faults, decided by a generator with this seed.

    Attributes:
        failed: a call fails, and nothing happened.
        stored_but_error: a put or a delete happens, and fails.
        max_iterations: of the event loop that a call waits before it happens, and its response
            afterwards.
    """

    seed: int = 0
    failed: float = 0.0
    stored_but_error: float = 0.0
    max_iterations: int = 3


class MemoryObjects:
    """`Objects` in a dictionary.

    Attributes:
        content: the stored objects, by key.
        puts: number of stored ones, with repetitions.
        is_down: while True, every call fails.
    """

    def __init__(self, content: dict[str, bytes] | None = None, faults: ObjectFaults | None = None) -> None:
        self.content: dict[str, bytes] = {} if content is None else content
        self.faults = faults or ObjectFaults()
        self.puts = 0
        self.is_down = False
        self._random = random.Random(self.faults.seed)  # noqa: S311 - faults must be repeatable

    @property
    def location(self) -> str:
        return "memory:"

    async def put(self, key: str, parts: Sequence[bytes | memoryview]) -> None:
        data = b"".join(parts)
        await self._arrive(key)
        self.content[key] = data
        self.puts += 1
        await self._respond(key)

    async def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        await self._arrive(key)
        found = self.content.get(key)
        if found is None:
            raise ObjectMissing(f"{self.location} has no object {key}; restore it from a backup")
        return found[start:] if length is None else found[start : start + length]

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            await self._arrive(key)
            self.content.pop(key, None)
            await self._respond(key)

    async def find(self, prefix: str = "") -> list[ObjectInfo]:
        await self._arrive(prefix)
        return [
            ObjectInfo(key, len(self.content[key])) for key in sorted(self.content) if key.startswith(prefix)
        ]

    def with_faults(self, **faults: float) -> None:
        """Change probabilities; the sequence of the generator continues."""
        self.faults = dataclasses.replace(self.faults, **faults)  # type: ignore[arg-type]  # floats

    async def _arrive(self, key: str) -> None:
        for _ in range(self._random.randint(1, max(1, self.faults.max_iterations))):
            await asyncio.sleep(0)
        if self.is_down or self._random.random() < self.faults.failed:
            raise ObjectsUnavailable(f"the object store did not take the call for {key!r}; try again")

    async def _respond(self, key: str) -> None:
        for _ in range(self._random.randint(0, max(0, self.faults.max_iterations - 1))):
            await asyncio.sleep(0)
        if self._random.random() < self.faults.stored_but_error:
            raise ObjectsUnavailable(f"the response of the object store for {key!r} was lost; try again")
