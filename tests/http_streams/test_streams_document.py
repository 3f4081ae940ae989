"""The tables of docs/http.md about streams and sockets have every frame, and its program runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import sparrow.testing
from sparrow.frontends.http.sockets import client_frames as m
from sparrow.frontends.http.sockets import server_frames

DOCUMENT = (Path(__file__).parents[2] / "docs" / "http.md").read_text()
URL = "http://127.0.0.1:9095"


def section(title: str) -> str:
    """Return the text below a title of any level."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#)", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def rows(title: str) -> dict[str, list[str]]:
    """Return the table below a title without its head: the first cell of each row, and the
    others.
    """
    lines = re.findall(r"^\| `(\w+)` \|(.*)\|$", section(title), re.MULTILINE)
    return {kind: [cell.strip() for cell in rest.split(" | ")] for kind, rest in lines[1:]}


def frames() -> dict[str, type[m.ClientFrame]]:
    """Return every frame of a client, by its type."""
    return {str(kind.__struct_config__.tag): kind for kind in m.ClientFrame.__subclasses__()}


def test_the_table_has_every_frame_of_the_client_with_its_members() -> None:
    table = rows("Frames of the client")
    assert table.keys() == frames().keys()
    text = section("WebSocket") + section("Frames of the client") + section("Frames of the broker")
    for kind, frame in frames().items():
        members = {field.encode_name for field in msgspec.structs.fields(frame)} - {"id"}
        row = text if kind == "subscribe" else table[kind][0]
        assert not {name for name in members if f"`{name}`" not in row}, kind


def test_the_table_has_every_frame_of_the_broker() -> None:
    assert server_frames.__doc__ is not None
    listed = re.findall(r"^    ([a-z, ]+?)   ", server_frames.__doc__, re.MULTILINE)
    made = {kind for entry in listed for kind in entry.replace(" ", "").split(",")} | {"pong"}
    assert rows("Frames of the broker").keys() == made


@pytest.mark.slow
def test_the_program_runs() -> None:
    [program] = re.findall(r"^```python\n(.*?)^```", section("WebSocket"), re.MULTILINE | re.DOTALL)
    with sparrow.testing.broker() as running:
        ended = subprocess.run(
            [sys.executable, "-c", program.replace(URL, running.http)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "'type': 'published'" in ended.stdout
    assert ended.stdout.splitlines()[-1] == "one more"
