"""Batches that readers could not read: counted, and logged once."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sparrow.base.errors import CorruptBatch

_LOG = logging.getLogger(__name__)
_REMEMBERED: Final = 1024
"""Batches whose log message is not repeated."""


class CorruptBatches:
    """Counts of unreadable batches, `broker.measures.corrupt_batches`. Loop thread only.

    Attributes:
        counts: by the kind of reader and its reaction: "fail", "skip", "reject" or "keep".
    """

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._logged: OrderedDict[tuple[str, str, str, int, int], None] = OrderedDict()

    def met(self, reader: str, rule: str, error: CorruptBatch) -> None:
        """Count a batch, and log its offset once for each kind of reader, because thousands of
        readers may read the same one.
        """
        self.counts[reader, rule] += 1
        key = (reader, rule, error.topic, error.partition, error.base_offset)
        if key in self._logged:
            self._logged.move_to_end(key)
            return
        self._logged[key] = None
        if len(self._logged) > _REMEMBERED:
            self._logged.popitem(last=False)
        _LOG.warning("%s (reader: %s, rule: %s)", error.text, reader, rule)
