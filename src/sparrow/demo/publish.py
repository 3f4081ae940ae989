"""Publishing of a source so that causal delivery has work to do: children before their parents, and
shuffled within blocks, so that a parent comes a little or far too late.

The whole source is never in memory: a block is read, shuffled with a fixed seed, and sent by one
pipelined producer. A message counts when it is on stable storage.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import sparrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sparrow.demo.message import CommitMessage

BLOCK = 2000
"""Messages that are shuffled among each other, and after which progress is reported."""
_SEED = 20


@dataclass(frozen=True, slots=True)
class PublishCounts:
    """Counts of what was acknowledged."""

    messages: int
    parents: int
    """References from a message to a parent."""
    merges: int
    """Messages with several parents."""
    seconds: float


def publish(
    url: str, topic: str, messages: Iterable[CommitMessage], progress: Callable[[int], None]
) -> PublishCounts:
    """Publish all, each acknowledged on stable storage.

    Raises:
        SparrowError: something could not be published.
    """
    return asyncio.run(_publish(url, topic, messages, progress))


async def _publish(
    url: str, topic: str, messages: Iterable[CommitMessage], progress: Callable[[int], None]
) -> PublishCounts:
    sent = parents = merges = 0
    async with sparrow.connect(url, client_name="demo") as client, client.producer(acks="all") as producer:
        began = time.perf_counter()
        for block in shuffled(messages):
            for each in block:
                await producer.send(
                    topic, each.value, key=each.key, message_id=each.id, parents=each.parents or None
                )
                parents += len(each.parents)
                merges += len(each.parents) > 1
            sent += len(block)
            progress(sent)
        await producer.flush()
        return PublishCounts(sent, parents, merges, time.perf_counter() - began)


def shuffled(messages: Iterable[CommitMessage]) -> Iterator[list[CommitMessage]]:
    """Yield the messages in blocks, each shuffled."""
    dice = random.Random(_SEED)  # noqa: S311 - an order, not a secret
    rest = iter(messages)
    while block := list(islice(rest, BLOCK)):
        dice.shuffle(block)
        yield block
