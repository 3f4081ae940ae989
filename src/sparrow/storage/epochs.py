"""Where the epochs of a log begin: a log's owners one after the other (KIP-101, KIP-320)."""

from __future__ import annotations

from collections.abc import Sequence

Epochs = Sequence[tuple[int, int]]
"""(epoch, offset of its first batch), both growing."""
UNKNOWN = (-1, -1)


def end_of_epoch(begins: Epochs, epoch: int, current: int, end: int) -> tuple[int, int]:
    """Return (epoch, end offset) of the newest epoch up to `epoch` that a log has; `UNKNOWN` if
    `epoch` has not begun.

    Args:
        begins: of the epochs with batches; one that is older than all of them ended where the first
            of them begins.
        current: the epoch that has not ended.
        end: end of the log.
    """
    if epoch > current or epoch < 0:
        return UNKNOWN
    if epoch == current:
        return current, end
    later = next((begin for number, begin in begins if number > epoch), end)
    found = max((number for number, _ in begins if number <= epoch), default=epoch)
    return found, later
