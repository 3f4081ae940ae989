"""A directory with the files that the pipelines of these tests name."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from sparrow.cli import main


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Return the working directory of a test."""
    (tmp_path / "bad.avsc").write_text('{"type": "string"}\n')
    (tmp_path / "bad.avsc.py").write_text("def (:\n")
    (tmp_path / "steps.py").write_text("def enrich(df):\n    return df\n")
    unknown = {"type": "record", "name": "A", "fields": [{"name": "x", "type": "Y"}]}
    (tmp_path / "unknown.avsc").write_text(json.dumps(unknown))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@dataclass(frozen=True)
class Outcome:
    """Result of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self):
        """Return the cells of each line of stdout, as a script reads them."""
        return [line.split("\t") for line in self.out.splitlines()]


@pytest.fixture
def run(capfd, monkeypatch):
    """Run `sparrow pipeline ARGUMENTS…` in this process."""
    for name in ("SPARROW_URL", "SPARROW_TOKEN", "SPARROW_USER", "SPARROW_PASSWORD"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: object) -> Outcome:
        capfd.readouterr()
        code = main(["pipeline", *map(str, arguments)])
        out, err = capfd.readouterr()
        return Outcome(code, out, err)

    return run
