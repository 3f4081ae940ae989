"""Permissions and owner of the data directory."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

import pytest

import sparrow.sync
import sparrow.testing
from sparrow.base.errors import InvalidConfig
from sparrow.server.config import load
from sparrow.server.data_directory import directory_warnings, read_mode


def modes(root: Path) -> dict[bool, set[int]]:
    """Return the permissions of directories (True) and files (False)."""
    found: dict[bool, set[int]] = {True: set(), False: set()}
    for each in [root, *root.rglob("*")]:
        found[each.is_dir()].add(stat.S_IMODE(each.stat().st_mode))
    return found


def fill(path: Path, **options: str) -> None:
    with (
        sparrow.testing.broker(data_dir=str(path), **options) as broker,
        sparrow.sync.connect(broker.url) as client,
    ):
        client.publish("orders", b"x")


def test_everything_is_its_owners_alone(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    assert modes(tmp_path / "data") == {True: {0o700}, False: {0o600}}


def test_another_mode_is_that_of_all_but_the_meta_store(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        fill(tmp_path / "data", data_mode="0750")
    finally:
        os.umask(before)
    found = modes(tmp_path / "data")
    assert found[True] == {0o750}
    assert found[False] == {0o640, 0o600}
    assert stat.S_IMODE((tmp_path / "data" / "meta.db").stat().st_mode) == 0o600


@pytest.mark.parametrize(("given", "mode"), [("0700", 0o700), ("750", 0o750), ("0o770", 0o770)])
def test_a_mode_is_three_octal_digits(given: str, mode: int) -> None:
    assert read_mode(given) == mode


@pytest.mark.parametrize("wrong", ["0800", "rwx", "7", "0500", "077", 448, True])
def test_other_mode_is_refused_with_the_allowed_ones(wrong: object) -> None:
    with pytest.raises(InvalidConfig, match="data_mode"):
        load({"data_mode": wrong}, {})


def test_a_wider_directory_is_told_of_with_the_command_that_narrows_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (warning,) = directory_warnings(str(tmp_path), 0o700)
    assert f"chmod 0700 {tmp_path}" in warning
    assert directory_warnings(str(tmp_path), 0o755) == []
    assert directory_warnings(str(tmp_path / "none"), 0o700) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to somebody else")
def test_a_directory_of_another_owner_is_told_of(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    os.chown(tmp_path, 12345, 12345)
    (warning,) = directory_warnings(str(tmp_path), 0o700)
    assert "user id 12345" in warning
    assert f"chown -R 0 {tmp_path}" in warning


def test_the_start_says_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = tmp_path / "data"
    fill(data)
    data.chmod(0o777)
    with caplog.at_level(logging.WARNING, "sparrow.server"):
        fill(data)
    assert any("wider than data_mode" in record.getMessage() for record in caplog.records)
