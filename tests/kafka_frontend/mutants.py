"""Batches with changed bytes after their header and a correct CRC, and three decoders for them."""

from __future__ import annotations

import gzip
import random
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import confluent_kafka
import cramjam
import lz4.frame
import zstandard

from sparrow.records.batch import HEADER_BYTES
from sparrow.records.builder import BatchFields, assemble, encode_headers, encode_records
from sparrow.records.compression import Compression, compress
from sparrow.records.record import Record, decode
from tests.kafka_frontend.raw import RawClient
from tests.kafka_frontend.requests import produce
from tests.records.kafka_python import MemoryRecords
from tests.records.malformed import NOW_MS, with_crc

SECONDS = 60
_PIPELINED = 100


SKIPPABLE = b"\x50\x2a\x4d\x18\x05\x00\x00\x00hello"
"""A frame that readers of lz4 and zstd skip."""


class Row(NamedTuple):
    """One record, in a form that every decoder can produce."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def _gzip_with_name(data: bytes) -> bytes:
    plain = gzip.compress(data)
    return plain[:3] + b"\x08" + plain[4:10] + b"name\x00" + plain[10:]


def _lz4(**options: Any) -> Callable[[bytes], bytes]:
    return lambda data: lz4.frame.compress(data, **options)


def _zstd(**options: Any) -> Callable[[bytes], bytes]:
    return lambda data: zstandard.ZstdCompressor(**options).compress(data)


def _zstd_stream(data: bytes) -> bytes:
    """Compress without the content's size, as the Java client does."""
    compressor = zstandard.ZstdCompressor().compressobj()
    return compressor.compress(data) + compressor.flush()


FRAMINGS: dict[Compression, Sequence[Callable[[bytes], bytes]]] = {
    Compression.NONE: (lambda data: data,),
    Compression.GZIP: (lambda data: compress(1, data), gzip.compress, _gzip_with_name),
    Compression.SNAPPY: (
        lambda data: compress(2, data),
        lambda data: bytes(cramjam.snappy.compress_raw(data)),
    ),
    Compression.LZ4: (
        lambda data: compress(3, data),
        _lz4(),
        _lz4(content_checksum=True, block_checksum=True, store_size=False),
        _lz4(block_linked=False, store_size=False, compression_level=9),
    ),
    Compression.ZSTD: (
        lambda data: compress(4, data),
        _zstd_stream,
        _zstd(write_checksum=True),
        _zstd(write_content_size=False, level=1),
    ),
}
"""The framing of each codec, as clients write it."""


def originals(rng: random.Random, codec: Compression) -> tuple[bytes, int]:
    """Return uncompressed records and their number, as clients send them, with every feature of the
    format.
    """
    count = rng.choice((1, 2, 3, 5, 10, 70))
    words = [b"", b"v", b"value %d" % rng.randrange(1000), bytes(rng.randrange(90)), rng.randbytes(70)]
    keys = [rng.choice((None, b"", b"key %d" % n)) for n in range(count)]
    values = [rng.choice((None, *words)) for _ in range(count)]
    headers = [
        encode_headers(
            [
                (rng.choice(("", "n", "message-id", "übergrößenträger")), rng.choice((None, b"", b"x" * 9)))
                for _ in range(rng.choice((0, 0, 0, 1, 3)))
            ]
        )
        for _ in range(count)
    ]
    deltas = [rng.choice((0, n, -n, 100 * n, 10**9)) for n in range(count)]
    if codec is not Compression.NONE and rng.random() < 0.1:  # more than one block
        values[0] = rng.randbytes(100) * rng.choice((400, 1500))
    return encode_records(values, keys, headers, deltas), count


def mutant(rng: random.Random, codec: Compression) -> bytes:
    """Return a batch with a correct header and CRC, and an error after the header.

    Mostly one to three bytes differ. In some batches the bytes differ before compression, so that
    the decompressed data is wrong; in some a piece is missing, doubled or foreign.
    """
    records, count = originals(rng, codec)
    compressed = rng.choice(FRAMINGS[codec])
    kind = rng.random()
    if kind < 0.7:
        body = _changed(rng, compressed(records))
    elif kind < 0.85:
        body = compressed(_changed(rng, records))
    elif kind < 0.9:
        body = compressed(_cut(rng, records))
    else:
        body = _cut(rng, compressed(records))
    header = assemble(b"", 0, count - 1, BatchFields(NOW_MS, NOW_MS))[:HEADER_BYTES]
    batch = bytearray(header + body)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[21:23] = int(codec).to_bytes(2, "big")
    batch[57:61] = count.to_bytes(4, "big")
    return with_crc(batch)


def _changed(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
        # Only the first bytes of a frame control its decoding.
        at = rng.randrange(len(changed) if rng.random() < 0.7 else min(len(changed), 40))
        flipped = changed[at] ^ 1 << rng.randrange(8)
        changed[at] = rng.choice((rng.randrange(256), flipped, 0, 1, 0x7F, 0x80, 0xFF))
    return bytes(changed)


def _cut(rng: random.Random, data: bytes) -> bytes:
    at, end = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
    piece = data[at:end]
    return rng.choice((
        data[:at] + data[end:],
        data[:end] + piece + data[end:],
        data + piece,
        data + data,
        data + rng.randbytes(rng.randrange(1, 9)),
        data + bytes(rng.randrange(1, 9)),
        SKIPPABLE + data,
        data + SKIPPABLE,
        data[:at] + rng.randbytes(rng.randrange(1, 9)) + data[at:],
    ))  # fmt: skip


class Taken(NamedTuple):
    batch: bytes
    base_offset: int


def publish(raw: RawClient, topic: str, batches: Iterator[bytes]) -> tuple[list[Taken], dict[str, int]]:
    """Publish; return the accepted batches, and the number of refusals by code."""
    taken: list[Taken] = []
    refused: dict[str, int] = {}
    while some := list(islice(batches, _PIPELINED)):
        for batch in some:
            raw.send(produce(9, topic, [(0, batch)], acks=1))
        for batch in some:
            outcome = raw.receive(0, 9).responses[0].partition_responses[0]
            if outcome.base_offset >= 0:
                taken.append(Taken(batch, outcome.base_offset))
            else:
                name = outcome.error_code.name
                refused[name] = refused.get(name, 0) + 1
    return taken, refused


def ours(taken: Taken) -> list[Row]:
    batch = taken.base_offset.to_bytes(8, "big") + taken.batch[8:]
    return [_row(record) for record in decode(batch)]


def _row(record: Record) -> Row:
    return Row(record.offset, record.timestamp, record.key, record.value, record.headers)


def of_kafka_python(taken: Taken) -> list[Row]:
    batch = taken.base_offset.to_bytes(8, "big") + taken.batch[8:]
    found = MemoryRecords(batch).next_batch()
    assert found is not None
    return [Row(r.offset, r.timestamp, r.key, r.value, tuple(map(tuple, r.headers))) for r in found]


def as_librdkafka_shows(row: Row) -> Row:
    """Cut names of headers at a zero byte, as librdkafka returns them as C strings."""
    return row._replace(headers=tuple((name.partition("\x00")[0], value) for name, value in row.headers))


def of_librdkafka(bootstrap: str, topic: str, end: int, **settings: Any) -> tuple[list[Row], list[str]]:
    """Return all records of a partition before `end`, and the errors that librdkafka reports."""
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": "mutants",
        "enable.auto.commit": False,
        "check.crcs": True,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "log_level": 0,
        **settings,
    })  # fmt: skip
    rows: list[Row] = []
    faults: list[str] = []
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        is_over = False
        deadline = time.monotonic() + SECONDS + end / 5000
        while not is_over:
            assert time.monotonic() < deadline, f"no end after {len(rows)} records: {faults[:3]}"
            messages = consumer.consume(5000, timeout=0.05)
            for message in messages:
                error = message.error()
                if error is None:
                    rows.append(_of_message(message))
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    is_over = is_over or message.offset() >= end
                else:
                    faults.append(f"{message.offset()}: {error}")
                    is_over = is_over or len(faults) > 1000
    finally:
        consumer.close()
    return rows, faults


def _of_message(message: Any) -> Row:
    headers = tuple(message.headers() or ())
    return Row(message.offset(), message.timestamp()[1], message.key(), message.value(), headers)
