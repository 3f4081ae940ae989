"""A map from offsets to small integers, kept as runs of equal values.

A queue has a value for every record between the oldest that is not finished and the newest that was
scanned: millions of them, but neighbours mostly share their value. So runs of equal values are
stored, wherever they are and however long.

The offsets are cut into pages of 4096, so that a change moves at most one page's runs and a changed
page can be written by itself:

    page 0 ── 7                      one value in the whole page: the value itself
    page 1    (none)                 nothing was set: no entry
    page 2 ── starts 0 17 18 900     runs: where each begins (2 bytes) and its value (8 bytes);
              values 0  7  3   0     the last one ends with the page

Runs of a page are maximal: neighbours differ, and a page whose values become equal is folded.
Rejected: one sorted list of runs for all offsets (a change in the middle moves all behind it), a
byte or word per record (a million finished records would cost megabytes instead of nothing).

Pure. Not thread-safe.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from operator import eq
from typing import Final


class RangeMap:
    """Values (0 … 2**62) of offsets (0 and up). An offset that was not set has the value 0.

    A run costs about 10 bytes, a page of several runs some 300, a page of one run some 100. The
    keys of whole pages are entered one by one: a range that is set to a value other than 0 costs
    time and memory per 4096 offsets, one that is set to 0 does not.
    """

    PAGE_BITS: Final = 12
    PAGE: Final = 4096

    __slots__ = ("_order", "_pages")

    def __init__(self) -> None:
        self._pages: dict[int, int | _Page] = {}
        """By page number: the runs, or the one value (not 0) of the whole page. A page without
        values has no entry.
        """
        self._order: array[int] = array("q")
        """The keys of `_pages`, ascending."""

    def get(self, offset: int) -> int:
        """Return the value of one offset."""
        page = self._pages.get(offset >> _BITS, 0)
        if isinstance(page, int):
            return page
        return page.values[bisect_right(page.starts, offset & _MASK) - 1]

    def run_at(self, offset: int) -> tuple[int, int]:
        """Return the value of an offset, and the end of its run within its page."""
        base = offset & ~_MASK
        page = self._pages.get(offset >> _BITS, 0)
        if isinstance(page, int):
            return page, base + _PAGE
        starts = page.starts
        following = bisect_right(starts, offset & _MASK)
        end = starts[following] if following < len(starts) else _PAGE
        return page.values[following - 1], base + end

    def set(self, first: int, end: int, value: int) -> None:
        """Set the value of the offsets `first` … `end - 1`; 0 forgets them. An empty range changes
        nothing.
        """
        if first >= end:
            return
        number = first >> _BITS
        base = number << _BITS
        if end > base + _PAGE:
            self._set_across_pages(first, end, value)
            return
        page = self._pages.get(number, 0)
        if isinstance(page, int):
            if page == value:
                return
            if end - first == _PAGE:
                self._put(number, value)
                return
            page = _Page(page)
            self._put(number, page)
        page.set(first - base, end - base, value)
        if len(page.starts) == 1:
            self._put(number, page.values[0])

    def _set_across_pages(self, first: int, end: int, value: int) -> None:
        number, last = first >> _BITS, end >> _BITS
        if first & _MASK:
            number += 1
            self.set(first, number << _BITS, value)
        self.set(last << _BITS, end, value)
        self._set_pages(number, last, value)

    def runs(self, first: int, end: int) -> Iterable[tuple[int, int, int]]:
        """Return the runs (first, end, value) that cover `first` … `end - 1` in order and without
        holes, each as long as it can be.

        Runs of value 0 are included. The map must not be changed while they are iterated over.
        """
        if first >= end:
            return ()
        base = first & ~_MASK
        if end > base + _PAGE:
            return self._runs(first, end)
        page = self._pages.get(first >> _BITS, 0)
        if isinstance(page, int):
            return [(first, end, page)]
        starts, values = page.starts, page.values
        low = bisect_right(starts, first - base)
        if low == len(starts) or base + starts[low] >= end:
            return [(first, end, values[low - 1])]
        high = bisect_left(starts, end - base, low)
        bounds = [first, *[base + start for start in starts[low:high]], end]
        return list(zip(bounds, bounds[1:], values[low - 1 : high], strict=False))

    def _runs(self, first: int, end: int) -> Iterator[tuple[int, int, int]]:
        begin, current = first, -1
        for start, value in self._starts(first, end):
            if value != current:
                if start > begin:
                    yield begin, start, current
                begin, current = start, value
        if begin < end:
            yield begin, end, current

    def page_runs(self, page: int) -> list[tuple[int, int, int]]:
        """Return the runs (first, end, value) of one page that have a value other than 0, cut at
        the page's bounds.
        """
        base = page << _BITS
        return [run for run in self.runs(base, base + _PAGE) if run[2]]

    def columns(self, page: int) -> tuple[array[int], array[int]]:
        """Return the runs of one page as columns: where each begins within the page (the first at
        0), and its value. To be read only.
        """
        runs = self._pages.get(page, 0)
        if isinstance(runs, int):
            runs = _Page(runs)
        return runs.starts, runs.values

    def set_page(self, page: int, starts: array[int], values: array[int]) -> None:
        """Replace a page by runs, as `columns` returns them, but neighbours may be equal. The
        columns are the map's from now on.
        """
        if any(map(eq, values, values[1:])):
            kept = [n for n in range(len(values)) if not n or values[n] != values[n - 1]]
            starts = array("H", map(starts.__getitem__, kept))
            values = array("q", map(values.__getitem__, kept))
        runs = _Page(0)
        runs.starts, runs.values = starts, values
        self._put(page, values[0] if len(values) == 1 else runs)

    def pages(self) -> list[int]:
        """Return the numbers of the pages that have values, ascending."""
        return self._order.tolist()

    def forget_before(self, offset: int) -> None:
        """Set everything before the offset to 0. Costs next to nothing where nothing is set."""
        order = self._order
        if order and order[0] << _BITS < offset:
            self.set(order[0] << _BITS, offset, 0)

    def _put(self, number: int, page: int | _Page) -> None:
        """Replace the content of a page; 0: nothing."""
        pages, order = self._pages, self._order
        if page == 0:
            if number in pages:
                del pages[number]
                del order[bisect_left(order, number)]
            return
        if number not in pages:
            order.insert(bisect_left(order, number), number)
        pages[number] = page

    def _set_pages(self, first: int, end: int, value: int) -> None:
        """Set whole pages, given by their numbers."""
        if first >= end:
            return
        pages, order = self._pages, self._order
        low = bisect_left(order, first)
        high = bisect_left(order, end, low)
        if value:
            numbers = array("q", range(first, end))
            pages.update(dict.fromkeys(numbers, value))
            order[low:high] = numbers
        else:
            for number in order[low:high]:
                del pages[number]
            del order[low:high]

    def _starts(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield where a value begins, and the value, from `first` on. Neighbours may be equal where
        one page follows another.
        """
        pages, order = self._pages, self._order
        at = first
        while at < end:
            number = at >> _BITS
            page = pages.get(number, 0)
            if isinstance(page, int):
                yield at, page
                if page:
                    at = (number + 1) << _BITS
                    continue
                following = bisect_right(order, number)
                if following == len(order):
                    return
                at = order[following] << _BITS
            else:
                yield from page.starts_between(number << _BITS, at, end)
                at = (number + 1) << _BITS


class _Page:
    """The runs of one page: two columns. Offsets are relative to the page."""

    __slots__ = ("starts", "values")

    def __init__(self, value: int) -> None:
        self.starts: array[int] = array("H", (0,))
        """Where each run begins, ascending; the first is 0."""
        self.values: array[int] = array("q", (value,))

    def set(self, first: int, end: int, value: int) -> None:
        """Set the value of a range: cut the runs in which it begins and ends, replace those
        between, and join equal neighbours.
        """
        starts, values = self.starts, self.values
        low = bisect_right(starts, first) - 1
        high = bisect_left(starts, end, low + 1)
        if starts[low] < first:
            left = values[low]
            low += 1
        else:
            left = values[low - 1] if low else -1
        if end < (starts[high] if high < len(starts) else _PAGE):
            # The rest of the last run, behind the range, begins at `end` now.
            if low < high:
                high -= 1
                starts[high] = end
            else:
                starts.insert(high, end)
                values.insert(high, left)
        # The runs `low` … `high - 1` are those of the range.
        joins_right = high < len(starts) and values[high] == value
        if left == value:
            del starts[low : high + joins_right], values[low : high + joins_right]
        elif joins_right:
            starts[high] = first
            del starts[low:high], values[low:high]
        elif low < high:
            starts[low] = first
            values[low] = value
            del starts[low + 1 : high], values[low + 1 : high]
        else:
            starts.insert(low, first)
            values.insert(low, value)

    def starts_between(self, base: int, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield (offset, value) of each run that begins in `first` … `end - 1`, absolute. The run
        that `first` is in begins there.
        """
        starts, values = self.starts, self.values
        low = bisect_right(starts, first - base) - 1
        yield first, values[low]
        for index in range(low + 1, len(starts)):
            start = base + starts[index]
            if start >= end:
                return
            yield start, values[index]


_BITS: Final = RangeMap.PAGE_BITS
_PAGE: Final = RangeMap.PAGE
_MASK: Final = RangeMap.PAGE - 1
