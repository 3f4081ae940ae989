"""Batches behind a first one that looks harmless: their producer, sequence and transaction would go
unnoticed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sparrow.base.errors import InvalidRecord
from sparrow.broker.broker import Broker
from sparrow.records.builder import build_batch

PLAIN = build_batch([b"plain"])


@pytest.mark.parametrize("transactional", [False, True])
async def test_a_batch_of_a_producer_is_alone_in_its_publish(tmp_path: Path, transactional: bool) -> None:
    """Readers of committed records would see the records of a transaction that is open or was
    aborted.
    """
    async with Broker(tmp_path / "data") as broker:
        await broker.topics.create("orders", 1)
        producer_id = (await broker.records.open_producer()).producer_id
        smuggled = build_batch(
            [b"x"],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=transactional,
        )
        for data in (PLAIN + smuggled, smuggled + PLAIN, smuggled + smuggled):
            with pytest.raises(InvalidRecord):
                await broker.records.publish("orders", 0, data, admit=lambda *_: None)
        published = await broker.records.publish("orders", 0, PLAIN + PLAIN)
        assert published.base_offset == 0
