"""Tables on stdout: by Rich on a terminal, tab-separated without a frame otherwise, so that pipes
get plain columns.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.table import Table


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "") -> None:
    """Print rows under their columns."""
    cells = [[_plain(str(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich(columns, cells, title)
        return
    for row in [list(columns), *cells]:
        print("\t".join(row))


def _plain(text: str) -> str:
    """Escape names, which clients choose: they must not move the cursor or break the columns."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _print_rich(columns: Sequence[str], rows: list[list[str]], title: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left")
    for name, values in zip(columns, zip(*rows, strict=True) if rows else [()] * len(columns), strict=True):
        numeric = bool(values) and all(value.lstrip("-").isdecimal() for value in values)
        table.add_column(name, justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    # A table that is wider than the terminal is printed as it is, and the terminal breaks its
    # lines: a name that is cut cannot be used.
    width, height = Console().size
    Console(width=max(width, _width_of(table, columns, rows)), height=height).print(table)


def _width_of(table: Table, columns: Sequence[str], rows: list[list[str]]) -> int:
    """Return the width that the table needs, with two cells of padding for each column and its
    frame.
    """
    from rich.cells import cell_len

    widths = [max(map(cell_len, (name, *values))) for name, *values in zip(columns, *rows, strict=True)]
    return sum(widths) + (table.padding[1] + table.padding[3]) * len(widths) + len(widths) + 1
