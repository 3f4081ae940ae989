"""The name of a partition, as every part of Sparrow writes it.

A plain tuple: it is the key of dictionaries on the path of every batch, where a class of its own
would cost time.
"""

from __future__ import annotations

TopicPartition = tuple[str, int]
"""(topic, partition number from 0)."""
