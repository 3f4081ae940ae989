"""The loops of `compiled` as Python, where an index outside an array is an error: decode garbled
batches and encode. Run with NUMBA_DISABLE_JIT=1.

Prints the number of garbled batches. Fails if anything is raised, or differs from the other
implementation.
"""

from __future__ import annotations

import random

import numba
import numpy as np
import pyarrow as pa

from sparrow.records.builder import build_batch
from sparrow.spark.kernels import DecodeOptions
from sparrow.spark.kernels.compiled import HAS_CRC
from tests.records.naive import corrected
from tests.spark_kernels.both import EVERYTHING, encoded, try_decoding

ROUNDS = 250
TIMES = (0, 5, 64, 10_000, 2**40)


def some_batch(chance: random.Random) -> bytes:
    count = chance.randrange(1, 5)

    def content() -> bytes | None:
        return None if chance.random() < 0.2 else chance.randbytes(chance.choice((0, 1, 9, 70)))

    return build_batch(
        [content() for _ in range(count)],
        [content() for _ in range(count)],
        [[("n" * chance.randrange(4), content())] * chance.randrange(3) for _ in range(count)],
        [chance.choice(TIMES) for _ in range(count)],
        compression=chance.choice((0, 0, 0, 3)),
    )


def garbled(chance: random.Random) -> bytes:
    """Garble bytes and correct the CRC, so that the loops see them."""
    batch = bytearray(some_batch(chance))
    for _ in range(chance.randrange(3)):
        batch[61 + chance.randrange(len(batch) - 61)] = chance.choice((0, 1, 0x7E, 0x7F, 0x80, 0xFF))
    if chance.random() < 0.3:
        del batch[61 + chance.randrange(len(batch) - 60) :]
    return corrected(bytes(batch))


def main() -> None:
    assert numba.config.DISABLE_JIT
    assert not HAS_CRC
    chance = random.Random(6)
    with np.errstate(over="ignore"):  # In machine code sums wrap around.
        for _ in range(ROUNDS):
            columns = EVERYTHING if chance.random() < 0.8 else ("value",)
            options = DecodeOptions(columns, skip_corrupt=True)
            try_decoding([garbled(chance), some_batch(chance)], options, low=chance.randrange(3), high=4)
        for size in (0, 3, 70, 400):
            keys = [None if n % 7 == 0 else b"k" * (n % size if size else 0) for n in range(100)]
            values = pa.array([chance.randbytes(size) for _ in keys], pa.binary())
            encoded({"key": pa.array(keys, pa.binary()), "value": values}, 3, max_batch_bytes=500)
    print(ROUNDS, "batches")


if __name__ == "__main__":
    main()
