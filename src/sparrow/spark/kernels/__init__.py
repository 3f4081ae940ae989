"""Conversion of record batches to Arrow and back, many records at a time.

It has two loops over single records, decoding and encoding. They are implemented twice, with the
same results to the last byte: for numba (`compiled`), and on numpy and Arrow for machines without
numba (`vectors`, about six times slower). The code around them exists once: `Decoder` and
`Encoder`. Importing this package loads Arrow but not numba, which is loaded with the first decoder
or encoder.
"""

from sparrow.spark.kernels.decoder import DecodeOptions, Decoder
from sparrow.spark.kernels.encoder import EncodedBatch, EncodeOptions, Encoder
from sparrow.spark.kernels.selection import warm

__all__ = ["DecodeOptions", "Decoder", "EncodeOptions", "EncodedBatch", "Encoder", "warm"]
