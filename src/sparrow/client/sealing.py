"""From a batch's columns to bytes, and to other bytes when its sequence changes or it must be split.

The producer's fields stand at fixed places of a record batch's header (`records/batch.py` draws it) and under its CRC.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import google_crc32c

from sparrow.records.batch import CRC_START
from sparrow.records.builder import build_batch
from sparrow.records.record import decode

if TYPE_CHECKING:
    from sparrow.client.delivery import Batch, Columns
    from sparrow.records.compression import Compression

_PRODUCER_OFFSET = 43
_PRODUCER = struct.Struct(">qhi")
_CRC_OFFSET = 17
_CRC = struct.Struct(">I")


def seal(batch: Batch, compression: Compression, producer_id: int, epoch: int, sequence: int) -> bytes:
    """The batch's bytes under these producer fields; the columns are dropped, so that they are not held twice."""
    if batch.data is None:
        data = build_batch(
            batch.values,
            batch.keys,
            batch.headers,
            batch.timestamps,
            compression=compression,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        batch.values = []
        batch.keys = batch.headers = None
        batch.data = data
    else:
        batch.data = renumber(batch.data, producer_id, epoch, sequence)
    batch.sequence = sequence
    return batch.data


def renumber(data: bytes, producer_id: int, epoch: int, sequence: int) -> bytes:
    """The same records with other producer fields."""
    changed = bytearray(data)
    _PRODUCER.pack_into(changed, _PRODUCER_OFFSET, producer_id, epoch, sequence)
    _CRC.pack_into(changed, _CRC_OFFSET, google_crc32c.value(bytes(changed[CRC_START:])))
    return bytes(changed)


def columns(data: bytes) -> Columns:
    """Values, keys, headers and timestamps of a sealed batch."""
    records = decode(data, check_crc=False)
    return (
        [record.value for record in records],
        [record.key for record in records],
        [record.headers for record in records],
        [record.timestamp for record in records],
    )
