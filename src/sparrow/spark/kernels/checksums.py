"""CRC-32C by the library, for machines on which the processor's instruction cannot be used
directly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import google_crc32c
import numpy as np

if TYPE_CHECKING:
    from sparrow.spark.kernels.contract import Bytes, Int64s


def crcs(data: Bytes, starts: Int64s, ends: Int64s) -> Int64s:
    """Return the CRC-32C of each of these ranges."""
    view = data.data
    # The library only takes bytes; the copy costs less than the sum.
    sums = [
        google_crc32c.value(bytes(view[start:end]))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    return np.array(sums, np.int64)
