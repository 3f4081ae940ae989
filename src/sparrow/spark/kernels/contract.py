"""The contract of the two implementations of the kernels, `compiled` and `vectors`.

Both are modules with the functions of `selection.Kernels`, and give the same results to the last
byte.

A kernel gets batches as a table with a row of int64 for each, whose columns are numbered here. It
returns a status.

numba's cache does not watch this file. If you change a number here, also change something in
`compiled`, or remove the cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]
    Int32s = npt.NDArray[np.int32]
    UInt32s = npt.NDArray[np.uint32]
    Int64s = npt.NDArray[np.int64]

OK: Final = 0
CORRUPT: Final = 1
FULL: Final = 2
"""There are more headers than the block has room for."""

# Columns of the table. Records are in the data from START to END; records of offset deltas outside
# [LOW, HIGH) are read and left out.
START: Final = 0
END: Final = 1
COUNT: Final = 2
BASE_OFFSET: Final = 3
LAST_DELTA: Final = 4
BASE_TIMESTAMP: Final = 5
MAX_TIMESTAMP: Final = 6
LOG_APPEND: Final = 7
LOW: Final = 8
HIGH: Final = 9
TABLE_COLUMNS: Final = 10

# Used parts of a block, in the array `Block.used`.
ROWS: Final = 0
KEY_BYTES: Final = 1
KEY_NULLS: Final = 2
VALUE_BYTES: Final = 3
VALUE_NULLS: Final = 4
HEADERS: Final = 5
HEADER_NAME_BYTES: Final = 6
HEADER_VALUE_BYTES: Final = 7
HEADER_NULLS: Final = 8
USED_COLUMNS: Final = 9


class Wanted(NamedTuple):
    """The requested columns among those that cost time. Others are not written, and headers that
    are not requested are not even checked.
    """

    key: bool
    value: bool
    headers: bool
