"""The tables of options in docs/spark.md equal the declarations."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from sparrow.spark.options.connection import CONNECTION
from sparrow.spark.options.declare import DataSourceOption, Options
from sparrow.spark.options.sink import SINK
from sparrow.spark.options.source import SOURCE

DOCUMENT = Path(__file__).parents[2] / "docs" / "spark.md"
HEAD = "| option | default | |\n|---|---|---|\n"
OF_SOURCE = tuple(each for each in SOURCE.declared if each not in CONNECTION)


def table(declared: Iterable[DataSourceOption]) -> str:
    aliases = {each.name: each.aliases for each in declared}
    rows = [
        f"| `{name}` | {default} | {_meaning(text, aliases[name])} |"
        for name, _, default, text in Options(tuple(declared)).table()
    ]
    return HEAD + "\n".join(rows) + "\n"


def _meaning(text: str, aliases: tuple[str, ...]) -> str:
    also = ", ".join(f"`{alias}`" for alias in aliases)
    return f"{text} Also {also}." if also else text


@pytest.mark.parametrize("declared", [OF_SOURCE, SINK, CONNECTION], ids=["source", "sink", "connection"])
def test_the_tables_of_options_are_those_of_the_declarations(declared: tuple[DataSourceOption, ...]) -> None:
    expected = table(declared)
    text = DOCUMENT.read_text()
    first = expected.removeprefix(HEAD).partition("\n")[0].split("|")[1]
    begin = text.index(f"{HEAD}|{first}|")
    assert text[begin : text.index("\n\n", begin) + 1] == expected
