"""The five codecs: data read back, data of other writers, and refusal of wrong data within the
bound.
"""

from __future__ import annotations

import contextlib
import gzip
import struct
import subprocess
import sys
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import CorruptBatch, RecordTooLarge, UnsupportedCompression
from sparrow.records.compression import Compression, compress, decompress

PACKED = [codec for codec in Compression if codec is not Compression.NONE]
PLAIN = b'{"id": 12345, "name": "sparrow", "seen": true}' * 300
STREAM_MAGIC = b"\x82SNAPPY\x00"


def noise(size: int) -> bytes:
    """Return bytes that no codec makes smaller."""
    state, out = 1, bytearray()
    while len(out) < size:
        state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        out += (state >> 16).to_bytes(6, "little")
    return bytes(out[:size])


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize(
    "data",
    [b"", b"a", PLAIN, bytes(200_000), noise(100), noise(200_000)],
    ids=["empty", "one", "text", "zeros", "noise", "long-noise"],
)
def test_compressed_bytes_decompress_to_themselves(codec: Compression, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed) == data
    assert decompress(codec, memoryview(packed), max_bytes=len(data)) == data


@given(st.sampled_from(Compression), st.binary(max_size=300))
def test_any_bytes_come_back(codec: Compression, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("data", [b"a", PLAIN, bytes(3_000_000), noise(200_000)])
def test_one_byte_over_the_bound_is_too_large(codec: Compression, data: bytes) -> None:
    packed = compress(codec, data)
    with pytest.raises(RecordTooLarge, match=codec.name.lower()):
        decompress(codec, packed, max_bytes=len(data) - 1)


def test_plain_records_are_bounded_too() -> None:
    assert decompress(Compression.NONE, b"abc", 3) == b"abc"
    with pytest.raises(RecordTooLarge):
        decompress(Compression.NONE, b"abcd", 3)


def zstd_stream(size: int) -> bytes:
    """Return a frame that does not declare its size."""
    compressor = cramjam.zstd.Compressor()
    for _ in range(size >> 20):
        compressor.compress(bytes(1 << 20))
    return bytes(compressor.finish())


BOMBS = {
    "gzip": lambda: (1, zlib.compress(bytes(256 << 20), 1, 31)),
    "snappy": lambda: (2, compress(2, bytes(1 << 20)) * 256),
    "snappy-raw": lambda: (2, bytes(cramjam.snappy.compress_raw(bytes(256 << 20)))),
    "snappy-lie": lambda: (2, b"\xff\xff\xff\xff\x0f" + bytes(20)),
    "lz4": lambda: (3, compress(3, bytes(256 << 20))),
    "zstd": lambda: (4, bytes(cramjam.zstd.compress(bytes(256 << 20)))),
    "zstd-stream": lambda: (4, zstd_stream(256 << 20)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(BOMBS))
def test_bomb_is_refused_without_more_memory_than_the_bound(name: str) -> None:
    codec, bomb = BOMBS[name]()
    bound = 16 << 20
    # In a process of its own, whose peak memory is not that of the test that made the bomb.
    script = (
        "import resource, sys\n"
        "from sparrow.base.errors import CorruptBatch, RecordTooLarge\n"
        "from sparrow.records.compression import decompress\n"
        "bomb = sys.stdin.buffer.read()\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n"
        f"    decompress({codec}, bomb, {bound})\n"
        "except (CorruptBatch, RecordTooLarge) as error:\n"
        "    print(type(error).__name__, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], input=bomb, capture_output=True, check=True)
    kind, grown_kib = done.stdout.decode().split()
    assert kind == "RecordTooLarge"
    assert int(grown_kib) * 1024 < bound + bound // 2


@pytest.mark.parametrize("codec", PACKED)
def test_cut_data_is_corrupt_at_every_length(codec: Compression) -> None:
    packed = compress(codec, PLAIN[:150] + noise(40))
    for size in range(len(packed)):
        if codec is Compression.SNAPPY and size == len(STREAM_MAGIC) + 8:
            continue  # a header without blocks is a stream of nothing
        with pytest.raises(CorruptBatch):
            decompress(codec, packed[:size])


@pytest.mark.parametrize("codec", PACKED)
def test_garbage_behind_the_end_is_corrupt(codec: Compression) -> None:
    with pytest.raises(CorruptBatch):
        decompress(codec, compress(codec, PLAIN) + b"garbage")


@given(
    st.sampled_from(PACKED),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4),
    st.integers(0, 40),
)
def test_damaged_data_is_read_or_refused_within_the_bound(
    codec: Compression, edits: list[tuple[int, int]], cut: int
) -> None:
    packed = bytearray(compress(codec, PLAIN[:400]))
    for position, byte in edits:
        packed[position % len(packed)] = byte
    with contextlib.suppress(CorruptBatch, RecordTooLarge):
        assert len(decompress(codec, bytes(packed[: len(packed) - cut]), max_bytes=5000)) <= 5000


@given(st.sampled_from(PACKED), st.binary(max_size=60))
def test_random_bytes_are_read_or_refused(codec: Compression, data: bytes) -> None:
    prefixes = {2: STREAM_MAGIC + bytes(8), 3: bytes.fromhex("04224d18604082"), 4: bytes.fromhex("28b52ffd")}
    for packed in (data, prefixes.get(codec, b"\x1f\x8b\x08\x00") + data):
        with contextlib.suppress(CorruptBatch, RecordTooLarge):
            assert len(decompress(codec, packed, max_bytes=5000)) <= 5000


def test_gzip_of_several_members_is_read_whole() -> None:
    assert decompress(Compression.GZIP, gzip.compress(b"one") + gzip.compress(b"two")) == b"onetwo"


def test_snappy_is_written_in_the_framing_of_javas_clients() -> None:
    packed = compress(Compression.SNAPPY, bytes(40_000))
    assert packed[:16] == STREAM_MAGIC + struct.pack(">ii", 1, 1)
    first = struct.unpack_from(">i", packed, 16)[0]
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + first])) == bytes(32 * 1024)


def test_snappy_is_read_raw_as_librdkafka_writes_it() -> None:
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(PLAIN))) == PLAIN


def test_snappy_streams_that_were_joined_are_read_whole() -> None:
    joined = compress(Compression.SNAPPY, b"one") + compress(Compression.SNAPPY, b"two")
    assert decompress(Compression.SNAPPY, joined) == b"onetwo"


def test_lz4_is_written_with_independent_blocks_as_kafka_demands() -> None:
    flags = compress(Compression.LZ4, PLAIN)[4]
    assert flags >> 6 == 1
    assert flags & 0x20


@pytest.mark.parametrize("content_checksum", [True, False])
@pytest.mark.parametrize("block_linked", [True, False])
def test_lz4_of_other_writers_is_read(content_checksum: bool, block_linked: bool) -> None:
    data = PLAIN * 20
    compressor = cramjam.lz4.Compressor(content_checksum=content_checksum, block_linked=block_linked)
    compressor.compress(data)
    assert decompress(Compression.LZ4, bytes(compressor.finish())) == data


@pytest.mark.parametrize("codec", [Compression.LZ4, Compression.ZSTD])
def test_frames_that_were_joined_are_read_whole(codec: Compression) -> None:
    assert decompress(codec, compress(codec, b"one") + compress(codec, b"two")) == b"onetwo"


@pytest.mark.parametrize("size", [0, 100, 70_000, 300_000])
def test_zstd_that_does_not_declare_its_size_is_read(size: int) -> None:
    compressor = cramjam.zstd.Compressor()
    compressor.compress(noise(size))
    assert decompress(Compression.ZSTD, bytes(compressor.finish())) == noise(size)


@pytest.mark.parametrize(
    ("name", "codec"),
    [("none", 0), ("uncompressed", 0), ("gzip", 1), ("Snappy", 2), ("LZ4", 3), ("zstd", 4)],
)
def test_codec_is_found_by_name(name: str, codec: int) -> None:
    assert Compression.parse(name) == codec


def test_unknown_name_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UnsupportedCompression, match="none, gzip, snappy, lz4, zstd"):
        Compression.parse("brotli")


@pytest.mark.parametrize("codec", [-1, 5, 7])
def test_unknown_number_is_refused(codec: int) -> None:
    with pytest.raises(UnsupportedCompression, match=str(codec)):
        compress(codec, b"")
    with pytest.raises(UnsupportedCompression, match=str(codec)):
        decompress(codec, b"")


# ── forms that some clients cannot read ───────────────────────────────────────────────────────────

DATA = b"some records " * 20_000
"""More than one block of each codec."""


def _raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def _xerial(version: int, compatible: int) -> bytes:
    plain = compress(Compression.SNAPPY, DATA)
    return plain[:8] + struct.pack(">ii", version, compatible) + plain[16:]


SKIPPABLE = b"\x50\x2a\x4d\x18\x05\x00\x00\x00hello"
AS_CLIENTS_WRITE = {
    **{f"our {codec.name}": (codec, compress(codec, DATA)) for codec in Compression},
    "gzip with a name": (
        1,
        gzip.compress(DATA)[:3] + b"\x08" + gzip.compress(DATA)[4:10] + b"n\0" + gzip.compress(DATA)[10:],
    ),
    "snappy without framing": (2, _raw_snappy(DATA)),
    "lz4 with all checksums": (
        3,
        lz4.frame.compress(DATA, content_checksum=True, block_checksum=True, block_linked=False),
    ),
    "zstd without its size": (4, zstandard.ZstdCompressor(write_content_size=False).compress(DATA)),
    "two zstd frames": (4, compress(4, DATA[:7]) + compress(4, DATA[7:])),
    "a zstd frame to pass over": (4, SKIPPABLE + compress(4, DATA)),
}
OTHERS = {
    "two gzip members": (1, compress(1, DATA[:7]) + compress(1, DATA[7:])),
    "an empty gzip member first": (1, compress(1, b"") + compress(1, DATA)),
    "an empty gzip member last": (1, compress(1, DATA) + compress(1, b"")),
    "two xerial headers": (2, compress(2, DATA[:7]) + compress(2, DATA[7:])),
    "xerial of version 0": (2, _xerial(0, 0)),
    "xerial of version 2": (2, _xerial(2, 1)),
    "xerial that wants version 2": (2, _xerial(1, 2)),
    "two lz4 frames": (3, compress(3, DATA[:7]) + compress(3, DATA[7:])),
    "an lz4 frame to pass over first": (3, SKIPPABLE + compress(3, DATA)),
    "an lz4 frame to pass over last": (3, compress(3, DATA) + SKIPPABLE),
    "linked lz4 blocks": (
        3,
        lz4.frame.compress(DATA, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=True),
    ),
}


@pytest.mark.parametrize("name", AS_CLIENTS_WRITE)
def test_forms_that_clients_write_pass_where_one_stream_is_asked_for(name: str) -> None:
    codec, data = AS_CLIENTS_WRITE[name]
    assert decompress(codec, data, one_stream=True) == decompress(codec, memoryview(data)) == DATA


@pytest.mark.parametrize("name", OTHERS)
def test_forms_that_some_clients_cannot_read_are_read_but_are_not_one_stream(name: str) -> None:
    codec, data = OTHERS[name]
    assert decompress(codec, data) == DATA
    with pytest.raises(CorruptBatch):
        decompress(codec, memoryview(data), one_stream=True)
