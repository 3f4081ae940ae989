"""Records rendered once for all who read them."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import CorruptBatch, RecordTooLarge
from sparrow.frontends.http import rendering
from sparrow.frontends.http.rendering import Form, Rendered, Renderings
from sparrow.records.builder import build_batch
from sparrow.records.compression import Compression


def batch_at(offset: int, *values: bytes, compression: int = 0) -> bytes:
    return build_batch(list(values), compression=compression, base_offset=offset)


async def rendered(renderings: Renderings, data: bytes, form: Form = Form.OBJECT) -> list[Rendered]:
    return [each async for each in renderings.of("t", 0, data, form=form)]


async def test_batches_are_rendered_one_by_one_with_their_offsets() -> None:
    data = batch_at(5, b"a", b"b") + batch_at(9, b"c")
    first, second = await rendered(Renderings(), data)
    assert (first.offsets, second.offsets) == ([5, 6], [9])
    assert [json.loads(piece)["value"] for piece in first.pieces] == ["a", "b"]


async def test_a_second_reader_gets_the_very_same_bytes() -> None:
    renderings, data = Renderings(), batch_at(0, b"a" * 100)
    [one], [two] = await rendered(renderings, data), await rendered(renderings, bytes(bytearray(data)))
    assert one.pieces[0] is two.pieces[0]


async def test_another_batch_at_the_same_offset_is_not_taken_for_the_first() -> None:
    renderings = Renderings()
    await rendered(renderings, batch_at(0, b"before the topic was deleted"))
    [found] = await rendered(renderings, batch_at(0, b"and after it was made again"))
    assert b"after" in found.pieces[0]


async def test_what_is_kept_is_bounded() -> None:
    renderings = Renderings(max_bytes=50_000)
    for offset in range(100):
        await rendered(renderings, batch_at(offset, b"x" * 2000))
        assert renderings.kept_bytes <= 50_000
    [again] = await rendered(renderings, batch_at(99, b"x" * 2000))
    assert len(again.pieces) == 1


async def test_nothing_is_kept_when_nobody_asks_for_a_while() -> None:
    renderings = Renderings()
    await rendered(renderings, batch_at(0, b"x"))
    renderings.sweep(100.0)
    renderings.sweep(100.0 + rendering.KEPT_S)
    assert renderings.kept_bytes
    renderings.sweep(100.1 + rendering.KEPT_S)
    assert not renderings.kept_bytes


async def test_a_large_batch_is_rendered_once_for_many_who_ask_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[object] = []
    real = rendering._rendered
    monkeypatch.setattr(rendering, "_rendered", lambda key, batch: (made.append(key), real(key, batch))[1])
    renderings, data = Renderings(), batch_at(0, *[b"y" * 500] * 400)
    found = await asyncio.gather(*(rendered(renderings, data) for _ in range(20)))
    assert len(made) == 1
    assert all(each[0].pieces is found[0][0].pieces for each in found)


async def test_who_stops_waiting_for_a_large_batch_does_not_disturb_the_others() -> None:
    renderings, data = Renderings(), batch_at(0, *[b"y" * 500] * 400, compression=Compression.ZSTD)
    impatient = asyncio.create_task(rendered(renderings, data))
    patient = asyncio.create_task(rendered(renderings, data))
    await asyncio.sleep(0)
    impatient.cancel()
    assert len((await patient)[0].offsets) == 400
    assert impatient.cancelled()


async def test_a_batch_that_explodes_when_decompressed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "MAX_PLAIN_BYTES", 100_000)
    with pytest.raises(RecordTooLarge):
        await rendered(Renderings(), batch_at(0, bytes(200_000), compression=Compression.ZSTD))


async def test_a_batch_whose_bytes_are_damaged_is_refused() -> None:
    data = bytearray(batch_at(0, b"some value"))
    data[-3] ^= 1
    with pytest.raises(CorruptBatch):
        await rendered(Renderings(), bytes(data))


@given(st.lists(st.integers(0, 100), unique=True).map(sorted), st.integers(0, 101))
def test_since_leaves_out_what_lies_before(offsets: list[int], start: int) -> None:
    found = Rendered(offsets, [b"%d" % offset for offset in offsets]).since(start)
    assert found.offsets == [offset for offset in offsets if offset >= start]
    assert found.pieces == [b"%d" % offset for offset in found.offsets]
