"""The two implementations of the kernels, `compiled` and `vectors`, and the choice between them."""

from __future__ import annotations

import importlib
import logging
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, Protocol, cast

from sparrow.base.errors import InvalidArgument

if TYPE_CHECKING:
    from sparrow.spark.kernels.block import Block
    from sparrow.spark.kernels.columns import BytesColumn, Rows
    from sparrow.spark.kernels.contract import Bytes, Int64s, UInt32s, Wanted

    Implementation = Literal["auto", "numba", "numpy"]

_PACKAGE: Final = "sparrow.spark.kernels"
_logger: Final = logging.getLogger(__name__)


class Kernels(Protocol):
    """An implementation. The functions are described in `compiled`."""

    @staticmethod
    def decode(
        data: Bytes, table: Int64s, first: int, wanted: Wanted, block: Block, /
    ) -> tuple[int, int]: ...

    @staticmethod
    def encode(
        rows: Rows, order: Int64s, first: int, last: int, out: Bytes, /, *, start: int, limit: int
    ) -> tuple[int, int, int]: ...

    @staticmethod
    def crcs(data: Bytes, starts: Int64s, ends: Int64s, /) -> Int64s: ...

    @staticmethod
    def murmur2(column: BytesColumn, /) -> UInt32s: ...


def select(implementation: Implementation) -> Kernels:
    """Return the kernels of that name; "auto": numba's, or numpy's if there is no numba.

    Raises:
        InvalidArgument: there is no such implementation, or "numba" is requested and cannot be
            used.
    """
    if implementation == "numpy":
        return _load("vectors")
    if implementation == "numba":
        try:
            return _load("compiled")
        except (ImportError, RuntimeError) as error:
            raise InvalidArgument(f"numba cannot be used here: {error}") from error
    if implementation == "auto":
        return _automatic()
    raise InvalidArgument(f"there are no kernels {implementation!r}; use auto, numba or numpy")


def warm() -> str:
    """Load the kernels now, so that no later call waits for it. Return the name of their module."""
    return str(getattr(_automatic(), "__name__", ""))


@lru_cache(maxsize=1)
def _automatic() -> Kernels:
    try:
        return _load("compiled")
    except ImportError:
        _logger.info("numba is not installed: records are decoded and encoded by the slower kernels")
    except RuntimeError as error:  # numba's error if no directory for its cache can be written.
        _logger.warning(
            "numba cannot keep what it compiles (%s): the slower kernels are used; set "
            "NUMBA_CACHE_DIR to a directory that can be written",
            error,
        )
    return _load("vectors")


def _load(module: str) -> Kernels:
    return cast("Kernels", importlib.import_module(f"{_PACKAGE}.{module}"))
