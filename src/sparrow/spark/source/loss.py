"""Records that were to be read and are gone: retention or a deletion passed the reader, a topic was
deleted, or deleted and created again.

By default reading fails, with what was wanted, what is there, and how many offsets are lost. With
`failOnDataLoss=false` the same sentence is a warning, and reading continues at what is there.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NoReturn

from sparrow.base.errors import OffsetOutOfRange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparrow.spark.source.snapshot import Extent, TopicPartition

_logger: Final = logging.getLogger("sparrow.spark")
_SHOWN: Final = 5


def passed(partition: TopicPartition, wanted: int, extent: Extent, high: int | None = None) -> str:
    """Return the sentence for a log that begins behind the next offset to read. `high`: the end of
    the reading.
    """
    lost = (extent.start if high is None else min(high, extent.start)) - wanted
    return (
        f"{partition}: offset {wanted} was to be read next, and the log begins at {extent.start} "
        f"({_offsets(lost)} lost)"
    )


def shrunk(partition: TopicPartition, wanted: int, extent: Extent) -> str:
    """Return the sentence for a log that ends before the next offset to read."""
    return (
        f"{partition}: offset {wanted} was to be read next, and the log ends at {extent.end} "
        f"(it lost {_offsets(wanted - extent.end)}, or the offset is not of this topic)"
    )


def cut(
    partition: TopicPartition, wanted: tuple[int, int], extent: Extent
) -> tuple[tuple[int, int], list[str]]:
    """Return the existing part of the offsets from one to before another, and sentences about the
    rest.
    """
    low, high = wanted
    losses = []
    if low < extent.start and low < high:
        losses.append(passed(partition, low, extent, high))
    if max(low, high) > extent.end:
        losses.append(shrunk(partition, max(low, high), extent))
    return (max(low, extent.start), min(high, extent.end)), losses


def remade(topic: str, known: str, found: str, next_offsets: Mapping[int, int]) -> str:
    """Return the sentence for a topic that is another one of the same name."""
    listed = ", ".join(f"{partition} from offset {offset}" for partition, offset in next_offsets.items())
    return (
        f"topic {topic} was deleted and made again: it had the id {known} and has {found} "
        f"(what the old one had in partitions {listed} on is lost)"
    )


def gone(topic: str, next_offsets: Mapping[int, int]) -> str:
    """Return the sentence for a topic, or partitions, that do not exist any more."""
    listed = ", ".join(f"{partition} from offset {offset}" for partition, offset in next_offsets.items())
    return (
        f"topic {topic} is gone (what it had in partitions {listed} on is lost), or not among those "
        "that are read any more"
    )


def settle(losses: Sequence[str], *, is_failure: bool) -> None:
    """Fail, or warn.

    Raises:
        OffsetOutOfRange: names what is lost.
    """
    if not losses:
        return
    if is_failure:
        fail(losses)
    for loss in losses:
        _logger.warning("data loss: %s", loss)


def fail(losses: Sequence[str]) -> NoReturn:
    shown = "; ".join(losses[:_SHOWN])
    more = f"; and {len(losses) - _SHOWN} more" if len(losses) > _SHOWN else ""
    raise OffsetOutOfRange(
        f"data loss: {shown}{more}. Set failOnDataLoss=false to go on with what is there, or begin "
        "again with another checkpointLocation"
    )


def _offsets(count: int) -> str:
    return f"{count} offset{'' if count == 1 else 's'}"
