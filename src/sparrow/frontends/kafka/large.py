"""Answers with a great many entries, to which administrators' requests can grow: written in a thread, so that the loop goes on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.frontends.kafka.dispatch import Call

ENTRIES_ON_LOOP: Final = 2_000
"""Writing an entry takes some microseconds."""


async def written(build: Callable[[], Any], entries: int, call: Call) -> Any:
    """The response that `build` makes, or its frame where it has more than a few entries.

    `build` may run in a thread: it reads nothing that changes.
    """
    if entries <= ENTRIES_ON_LOOP:
        return build()
    return await asyncio.to_thread(lambda: call.frame(build()))
