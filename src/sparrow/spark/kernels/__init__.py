"""Record batches to Arrow and back, many records at a time.

Between the bytes of a topic and the columns of Spark stand two loops over records, decoding and encoding. They are written twice, with the same results to the last
byte: for numba (`compiled`), and on numpy and Arrow for where numba is not installed (`vectors`, some six times slower). What is around them is there once: `Decoder`
and `Encoder`. Importing this package loads Arrow but not numba, which comes with the first decoder or encoder.
"""

from sparrow.spark.kernels.decoding import DecodeOptions, Decoder
from sparrow.spark.kernels.encoding import EncodedBatch, EncodeOptions, Encoder
from sparrow.spark.kernels.selection import warm

__all__ = ["DecodeOptions", "Decoder", "EncodeOptions", "EncodedBatch", "Encoder", "warm"]
