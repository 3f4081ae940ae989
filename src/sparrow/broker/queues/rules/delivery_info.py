"""Delivery options of a record that a queue must know. Pure."""

from __future__ import annotations

from typing import NamedTuple

from sparrow.records.wellknown import DEFAULT_PRIORITY


class DeliveryInfo(NamedTuple):
    """Delivery options of one record. Times are in ms since the epoch; 0 (or empty) where the
    record has none.
    """

    offset: int
    timestamp: int
    key: int = 0
    """Hash of the key (see `hash_of`); 0 without a key."""
    deliver_at_ms: int = 0
    level: int = DEFAULT_PRIORITY
    """Priority."""
    expires_at_ms: int = 0
    message_id: int = 0
    """Hash of the message id, made as the key's."""
    parents: tuple[int, ...] = ()
    """Hashes of the parent ids, in the order of the headers, duplicates included."""
    only_queue: str = ""
    """Name of the only queue that takes the record."""
