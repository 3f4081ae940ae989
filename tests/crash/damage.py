"""Damage below the recovery point, which no crash causes: a segment is cut, removed or zeroed at
its end, or the directory is removed.

It is separate from the other faults, because it ends a round with a broker that must refuse one
partition, and an operator who accepts the loss.
"""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass

from sparrow.storage.filesystem import LocalFileSystem
from sparrow.storage.names import LOG, segment_stem
from sparrow.storage.recovery import Recovered, examine_all


@dataclass(frozen=True)
class Inflicted:
    """A damage, and the log that has it (`topic-partition`)."""

    log: str
    what: str
    point: int
    """The end offset of the log's recovery point: batches that were acknowledged behind it may be
    lost with the files, too.
    """


def inflict(data_dir: str, topic: str, dice: random.Random) -> Inflicted | None:
    """Damage one partition of a topic of a killed broker, below its recovery point. Return None if
    no partition has a recovery point yet.
    """
    found = [
        each
        for each in examine_all(LocalFileSystem(), data_dir)
        if each.log.rpartition("-")[0] == topic and each.checkpoint is not None and each.checkpoint.segments
    ]
    if not found:
        return None
    chosen = dice.choice(found)
    assert chosen.checkpoint is not None
    act = dice.choice([_cut, _remove, _remove_directory])
    act(chosen, dice)
    return Inflicted(chosen.log, act.__name__, chosen.checkpoint.point.end_offset)


def _segment(found: Recovered, dice: random.Random) -> tuple[str, int]:
    """Return a segment that the checkpoint covers, and the number of its covered bytes."""
    assert found.checkpoint is not None
    saved = dice.choice([each for each in found.checkpoint.segments or () if each.size])
    return f"{found.directory}/{segment_stem(saved.base_offset)}{LOG}", saved.size


def _cut(found: Recovered, dice: random.Random) -> None:
    path, size = _segment(found, dice)
    os.truncate(path, dice.randrange(size))


def _remove(found: Recovered, dice: random.Random) -> None:
    os.unlink(_segment(found, dice)[0])


def _remove_directory(found: Recovered, dice: random.Random) -> None:
    del dice
    shutil.rmtree(found.directory)
