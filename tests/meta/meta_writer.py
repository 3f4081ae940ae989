"""A process that writes entries for ever and prints the acknowledged ones; the crash test kills it.

Usage: meta_writer.py PATH FIRST Each line "n" on stdout: entries a/n and b/n of the batch n are on
stable storage.
"""

from __future__ import annotations

import asyncio
import itertools
import sys

from sparrow.meta.sqlite import SqliteMetaStore
from sparrow.meta.store import Put


async def write_for_ever(path: str, first: int) -> None:
    # small, so that checkpoints are interrupted too
    store = SqliteMetaStore(path, wal_bytes=64 << 10)
    numbers = itertools.count(first)

    async def writer() -> None:
        for n in numbers:
            value = b"%d" % n
            await store.write([Put("a", value.decode(), value * 50), Put("b", value.decode(), value)])
            sys.stdout.write(f"{n}\n")
            sys.stdout.flush()

    await asyncio.gather(*(writer() for _ in range(8)))


if __name__ == "__main__":
    asyncio.run(write_for_ever(sys.argv[1], int(sys.argv[2])))
