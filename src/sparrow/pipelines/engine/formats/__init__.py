"""Formats of messages, decoded to rows. A row that cannot be decoded has its reason in the column
`_fault`, and nulls in the decoded columns.

The decoders are Spark's own functions if there are any (JSON, CSV, text), and Python over Arrow
arrays if Spark's need a JAR or do not exist (Avro, Protocol Buffers, regular expressions).
"""

from sparrow.pipelines.engine.formats.decoders import decode

__all__ = ["decode"]
