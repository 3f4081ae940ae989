"""The conformance suite of `Journal`. Subclass it, and give `open_journal`, which opens the same
journal again and again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from sparrow.base.errors import SparrowError, StorageFailed
from sparrow.storage.journal import MAX_RECORD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrow.storage.journal import Journal

    OpenJournal = Callable[[bytes | None], Journal]


def found(journal: Journal) -> list[bytes]:
    """Return the records that a journal found when it was opened."""
    return [bytes(record) for record in journal.take_records()]


class JournalConformance:
    """The suite."""

    @pytest.fixture
    def open_journal(self) -> OpenJournal:
        raise NotImplementedError

    async def test_a_new_journal_is_empty(self, open_journal: OpenJournal) -> None:
        journal = open_journal(None)
        assert found(journal) == []
        assert not journal.is_filling
        await journal.close()

    async def test_records_behind_the_mark_are_found_in_order(self, open_journal: OpenJournal) -> None:
        journal = open_journal(None)
        await journal.begin()
        await journal.append(b"before")
        mark = journal.mark()
        journal.release(mark)
        records = [b"%d" % number * number for number in range(50)]
        await asyncio.gather(*map(journal.append, records))
        await journal.close()
        again = open_journal(mark)
        assert found(again) == records
        assert found(again) == []
        await again.close()

    async def test_callers_are_told_in_the_order_of_the_records(self, open_journal: OpenJournal) -> None:
        journal = open_journal(None)
        await journal.begin()
        told: list[tuple[int, SparrowError | None]] = []
        for number in range(20):
            journal.append_then(b"%d" % number, lambda error, number=number: told.append((number, error)))
        assert told == []
        await journal.append(b"last")
        assert told == [(number, None) for number in range(20)]
        await journal.close()
        journal.append_then(b"late", lambda error: told.append((20, error)))
        assert len(told) == 20
        await asyncio.sleep(0)
        assert isinstance(told[20][1], StorageFailed)

    async def test_records_are_found_as_often_as_it_is_opened(self, open_journal: OpenJournal) -> None:
        journal = open_journal(None)
        mark = await journal.begin()
        await journal.append(b"one")
        await journal.close()
        for _ in range(3):
            again = open_journal(mark)
            assert found(again) == [b"one"]
            await again.close()

    async def test_records_of_two_openings_are_kept_apart(self, open_journal: OpenJournal) -> None:
        journal = open_journal(None)
        await journal.begin()
        await journal.append(b"one")
        await journal.close()
        for number in range(5):
            journal = open_journal(mark := await self._mark_of_second(open_journal, number))
            assert found(journal) == [b"%d" % number]
            assert mark
            await journal.close()

    @staticmethod
    async def _mark_of_second(open_journal: OpenJournal, number: int) -> bytes:
        journal = open_journal(None)
        mark = await journal.begin()
        await journal.append(b"%d" % number)
        await journal.close()
        return mark

    async def test_a_journal_with_a_final_mark_has_nothing_to_replay(self, open_journal: OpenJournal) -> None:
        journal = open_journal(None)
        await journal.begin()
        await journal.append(b"one")
        mark = journal.mark(is_final=True)
        await journal.close()
        again = open_journal(mark)
        assert found(again) == []
        mark = await again.begin()
        again.release(mark)
        await again.append(b"two")
        await again.close()
        third = open_journal(mark)
        assert found(third) == [b"two"]
        await third.close()

    async def test_its_space_is_used_again_and_again(self, open_journal: OpenJournal) -> None:
        journal = open_journal(None)
        mark = await journal.begin()
        record, since = bytes(MAX_RECORD_BYTES // 4), 0
        for number in range(60):
            await journal.append(b"%d" % number + record)
            since += 1
            if journal.is_filling:
                mark = journal.mark()
                journal.release(mark)
                since = 0
        await journal.close()
        again = open_journal(mark)
        assert [each[:2] for each in found(again)] == [b"%d" % number for number in range(60 - since, 60)]
        await again.close()

    async def test_appends_wait_for_a_checkpoint_when_all_space_is_in_use(
        self, open_journal: OpenJournal
    ) -> None:
        journal = open_journal(None)
        await journal.begin()
        record = bytes(MAX_RECORD_BYTES)
        appends = [journal.append(record) for _ in range(30)]
        async with asyncio.timeout(10):
            while not journal.is_filling or not appends[0].done():
                await asyncio.sleep(0.001)
        assert not appends[-1].done()
        async with asyncio.timeout(10):
            while not appends[-1].done():
                journal.release(journal.mark())
                await asyncio.sleep(0.001)
        await asyncio.gather(*appends)
        await journal.close()
