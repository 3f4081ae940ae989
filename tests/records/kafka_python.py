"""kafka-python's records and partitioner, imported past a deprecation in its loading of schemas
that is no fault of the tests.
"""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.partitioner import murmur2
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
    from kafka.record.memory_records import MemoryRecords

__all__ = ["KafkaPythonBatch", "KafkaPythonBuilder", "MemoryRecords", "murmur2"]
