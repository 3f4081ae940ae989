"""Batches with a right CRC and unreadable records, each wrong in its own way."""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Callable
from typing import Final

import google_crc32c

import sparrow.sync
from sparrow.base.errors import InvalidConfig
from sparrow.broker.broker import Broker
from sparrow.records.batch import HEADER_BYTES
from sparrow.records.builder import build_batch
from sparrow.records.compression import Compression
from sparrow.testing.running_broker import RunningBroker
from tests.kafka_frontend.raw import RawClient
from tests.kafka_frontend.requests import produce

RECORDS: Final = 3
_numbers = itertools.count()


def good(tag: str, compression: Compression = Compression.NONE) -> bytes:
    """Return three records with keys and values `<tag>0` to `<tag>2`."""
    values: list[bytes | None] = [f"{tag}{n}".encode() for n in range(RECORDS)]
    return build_batch(values, values, [()] * RECORDS, 1_700_000_000_000, compression)


def mended(batch: bytes | bytearray) -> bytes:
    """Return the batch with the length and the CRC of its bytes."""
    batch = bytearray(batch)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, 17, google_crc32c.value(bytes(batch[21:])))
    return bytes(batch)


def _with_body(body: bytes) -> bytes:
    return mended(good("x")[:HEADER_BYTES] + body)


def record_lengths() -> bytes:
    batch = bytearray(good("x"))
    batch[HEADER_BYTES] = 0x7E
    return mended(batch)


def varint_overflow() -> bytes:
    return _with_body(b"\xff" * 11 + good("x")[HEADER_BYTES:])


def header_counts() -> bytes:
    batch = bytearray(good("x"))
    batch[-1] = 0x10  # the last record counts eight headers, and has none
    return mended(batch)


def bad_payload() -> bytes:
    batch = bytearray(good("x" * 50, Compression.GZIP))
    batch[HEADER_BYTES + 12] ^= 0xFF
    return mended(batch)


@functools.cache
def decompression_bomb() -> bytes:
    """Return zeros that become 400 MB."""
    import zlib

    mebibytes, zeros = 400, bytes(1 << 20)
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    # After a full flush the same bytes are compressed to the same block: it is made once.
    block = packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH)
    crc = 0
    for _ in range(mebibytes):
        crc = zlib.crc32(zeros, crc)
    head, tail = b"\x1f\x8b\x08" + bytes(5) + b"\x02\xff", struct.pack("<II", crc, mebibytes << 20)
    batch = bytearray(_with_body(head + block * mebibytes + packer.flush() + tail))
    struct.pack_into(">h", batch, 21, Compression.GZIP)
    return mended(batch)


KINDS: Final[dict[str, Callable[[], bytes]]] = {
    "record lengths": record_lengths,
    "varint overflow": varint_overflow,
    "header counts": header_counts,
    "bad compressed payload": bad_payload,
    "decompression bomb": decompression_bomb,
}


def make_topic(broker: RunningBroker, *, partitions: int = 1, **config: str) -> str:
    """Create a topic that accepts the content of batches unchecked."""
    name = f"rotten-{next(_numbers)}"
    config = {"retention.ms": "-1", **config}  # the records are old
    with sparrow.sync.connect(broker.url) as client:
        try:
            client.admin.create_topic(
                name, partitions=partitions, config={"record.validation": "header", **config}
            )
        except InvalidConfig:  # a broker from before records were checked
            client.admin.create_topic(name, partitions=partitions, config=config)
    return name


async def fill(broker: Broker, topic: str, *batches: bytes) -> None:
    """Create a topic of a broker in this process, with these batches unchecked."""
    try:
        await broker.topics.create(topic, 1, {"record.validation": "header", "retention.ms": "-1"})
    except InvalidConfig:  # a broker from before records were checked
        await broker.topics.create(topic, 1, {"retention.ms": "-1"})
    for batch in batches:
        await broker.records.publish(topic, 0, batch)


def put(broker: RunningBroker, topic: str, batch: bytes, partition: int = 0) -> int:
    """Publish a batch as it is. Return its base offset."""
    with RawClient(broker.kafka) as raw:
        raw.send(produce(9, topic, [(partition, batch)], acks=-1))
        outcome = raw.receive(0, 9).responses[0].partition_responses[0]
    assert outcome.base_offset >= 0, outcome
    return int(outcome.base_offset)


def good_bad_good(broker: RunningBroker, kind: str = "record lengths", **config: str) -> str:
    """Create a topic of `a0 a1 a2`, an unreadable batch at offsets 3 to 5, `b0 b1 b2`."""
    topic = make_topic(broker, **config)
    assert put(broker, topic, good("a")) == 0
    assert put(broker, topic, KINDS[kind]()) == RECORDS
    assert put(broker, topic, good("b")) == 2 * RECORDS
    return topic


BEFORE: Final = [b"a0", b"a1", b"a2"]
BEHIND: Final = [b"b0", b"b1", b"b2"]
