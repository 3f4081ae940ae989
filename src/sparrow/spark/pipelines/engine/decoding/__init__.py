"""Messages to rows. A row that cannot be decoded has its reason in the column `_fault`, and nulls in the decoded columns.

Spark's own functions where it has them (JSON, CSV, text), and Python over Arrow arrays where it has none that needs no JAR (Avro, Protocol Buffers, regular expressions).
"""

from sparrow.spark.pipelines.engine.decoding.decoders import decode

__all__ = ["decode"]
