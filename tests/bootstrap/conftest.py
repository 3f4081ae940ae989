"""Configuration files in a directory of their own, and the command that checks them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparrow.cli import main
from sparrow.server.config import ServerConfig, load


@dataclass(frozen=True)
class Outcome:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


Command = Callable[..., Outcome]
Write = Callable[..., Path]


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a new working directory, and return it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def write(directory: Path) -> Write:
    """Return a function that writes sparrow.yml, or another file."""

    def write(text: str, name: str = "sparrow.yml") -> Path:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


@pytest.fixture
def command(directory: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function that runs `sparrow ARGUMENTS…` in this process."""
    assert directory

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Outcome(code, out, err)

    return run


@pytest.fixture
def read(write: Write) -> Callable[[str], ServerConfig]:
    """Return the configuration that a text contains."""

    def read(text: str) -> ServerConfig:
        return load({"config": str(write(text))}, {})[0]

    return read
