"""Records are rendered once for all readers."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import CorruptBatch
from sparrow.frontends.http import render_cache
from sparrow.frontends.http.render_cache import Form, RenderCache, RenderedBatch
from sparrow.records.builder import build_batch
from sparrow.records.compression import Compression


def batch_at(offset: int, *values: bytes, compression: int = 0) -> bytes:
    return build_batch(list(values), compression=compression, base_offset=offset)


async def rendered(cache: RenderCache, data: bytes, form: Form = Form.OBJECT) -> list[RenderedBatch]:
    return [each async for each in cache.of("t", 0, data, form=form)]


async def test_batches_are_rendered_one_by_one_with_their_offsets() -> None:
    data = batch_at(5, b"a", b"b") + batch_at(9, b"c")
    first, second = await rendered(RenderCache(), data)
    assert (first.offsets, second.offsets) == ([5, 6], [9])
    assert [json.loads(piece)["value"] for piece in first.pieces] == ["a", "b"]


async def test_a_second_reader_gets_the_very_same_bytes() -> None:
    cache, data = RenderCache(), batch_at(0, b"a" * 100)
    [one], [two] = await rendered(cache, data), await rendered(cache, bytes(bytearray(data)))
    assert one.pieces[0] is two.pieces[0]


async def test_another_batch_at_the_same_offset_is_not_taken_for_the_first() -> None:
    cache = RenderCache()
    await rendered(cache, batch_at(0, b"before the topic was deleted"))
    [found] = await rendered(cache, batch_at(0, b"and after it was made again"))
    assert b"after" in found.pieces[0]


async def test_cached_bytes_are_bounded() -> None:
    cache = RenderCache(max_bytes=50_000)
    for offset in range(100):
        await rendered(cache, batch_at(offset, b"x" * 2000))
        assert cache.cached_bytes <= 50_000
    [again] = await rendered(cache, batch_at(99, b"x" * 2000))
    assert len(again.pieces) == 1


async def test_nothing_is_kept_when_nobody_asks_for_a_while() -> None:
    cache = RenderCache()
    await rendered(cache, batch_at(0, b"x"))
    cache.sweep(100.0)
    cache.sweep(100.0 + render_cache.MAX_UNUSED_S)
    assert cache.cached_bytes
    cache.sweep(100.1 + render_cache.MAX_UNUSED_S)
    assert not cache.cached_bytes


async def test_large_batch_is_rendered_once_for_concurrent_readers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[object] = []
    real = render_cache._rendered
    monkeypatch.setattr(render_cache, "_rendered", lambda key, batch: (made.append(key), real(key, batch))[1])
    cache, data = RenderCache(), batch_at(0, *[b"y" * 500] * 400)
    found = await asyncio.gather(*(rendered(cache, data) for _ in range(20)))
    assert len(made) == 1
    assert all(each[0].pieces is found[0][0].pieces for each in found)


async def test_cancelled_reader_of_a_large_batch_does_not_disturb_others() -> None:
    cache, data = RenderCache(), batch_at(0, *[b"y" * 500] * 400, compression=Compression.ZSTD)
    impatient = asyncio.create_task(rendered(cache, data))
    patient = asyncio.create_task(rendered(cache, data))
    await asyncio.sleep(0)
    impatient.cancel()
    assert len((await patient)[0].offsets) == 400
    assert impatient.cancelled()


async def test_a_batch_that_explodes_when_decompressed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render_cache, "MAX_PLAIN_BYTES", 100_000)
    with pytest.raises(CorruptBatch, match="would become more than 100000 bytes"):
        await rendered(RenderCache(), batch_at(0, bytes(200_000), compression=Compression.ZSTD))


async def test_a_batch_whose_bytes_are_damaged_is_refused() -> None:
    data = bytearray(batch_at(0, b"some value"))
    data[-3] ^= 1
    with pytest.raises(CorruptBatch):
        await rendered(RenderCache(), bytes(data))


@given(st.lists(st.integers(0, 100), unique=True).map(sorted), st.integers(0, 101))
def test_since_leaves_out_earlier_records(offsets: list[int], start: int) -> None:
    found = RenderedBatch(offsets, [b"%d" % offset for offset in offsets]).since(start)
    assert found.offsets == [offset for offset in offsets if offset >= start]
    assert found.pieces == [b"%d" % offset for offset in found.offsets]
