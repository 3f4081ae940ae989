"""Files that others must not read, and names that other people choose."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sparrow.broker.broker import Broker
from sparrow.cli.acls import _principal
from sparrow.cli.tables import print_table


async def test_files_with_password_hashes_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        async with Broker(tmp_path / "data"):
            files = list((tmp_path / "data").glob("meta.db*"))
            assert files
            assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    finally:
        os.umask(before)


def test_a_name_does_not_write_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("GROUP", "CLIENT"), [("grün", "\x1b]0;owned\x07"), ("a\tb", "c\nd\x9b2J\u202e")])
    assert capsys.readouterr().out.splitlines() == [
        "GROUP\tCLIENT",
        "grün\t\\x1b]0;owned\\x07",
        "a\\tb\tc\\nd\\x9b2J\\u202e",
    ]


@pytest.mark.parametrize(
    ("given", "principal"),
    [
        ("alice", "User:alice"),
        ("*", "User:*"),
        ("User:alice", "User:alice"),
        ("Team:b", "Team:b"),
        ("CN=svc,OU=urn:x", "User:CN=svc,OU=urn:x"),
    ],
)
def test_a_colon_in_the_name_of_a_certificate_makes_no_type(given: str, principal: str) -> None:
    """Otherwise a rule for its owner would have no effect."""
    assert _principal(given) == principal
