"""The commands, programs and settings of docs/schedules.md are those that there are."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
import urllib.request
from pathlib import Path

import pytest
import yaml

import sparrow.testing
from sparrow.broker.schedules.settings import MAX_VALUE_BYTES, TABLE
from sparrow.broker.schedules.ticks import CATCH_UP_MS, GRACE_MS
from sparrow.cli import main
from sparrow.server.config import load

DOCUMENT = (Path(__file__).parents[2] / "docs" / "schedules.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)


@pytest.mark.slow
def test_the_commands_and_programs_work(monkeypatch: pytest.MonkeyPatch) -> None:
    with sparrow.testing.broker() as broker:
        monkeypatch.setenv("SPARROW_URL", broker.url)
        commands, requests = blocks("sh")
        for line in commands.splitlines():
            _, *arguments = shlex.split(line)
            assert main(arguments) == 0, line
        (program,) = blocks("python")
        exec(program.replace("sparrow://127.0.0.1:9094", broker.url), {})
        assert main(["schedule", "show", "nightly"]) == 0
        put = shlex.split(textwrap.dedent(requests.replace("\\\n", " ")).splitlines()[0])
        assert put[0] == "curl"
        request = urllib.request.Request(
            f"{broker.http}/v1/schedules/nightly",
            json.dumps(json.loads(put[put.index("-d") + 1])).encode(),
            {"Content-Type": "application/json"},
            method="PUT",
        )
        with urllib.request.urlopen(request) as response:
            assert json.load(response)["cron"] == "@daily"


def test_the_file_can_be_loaded(tmp_path: Path) -> None:
    (text,) = blocks("yaml")
    (tmp_path / "sparrow.yml").write_text(text)
    config, _ = load({"config": str(tmp_path / "sparrow.yml")}, {})
    assert [each.name for each in config.schedules] == list(yaml.safe_load(text)["schedules"])


def test_the_table_has_every_setting_with_its_default() -> None:
    table = DOCUMENT.partition("## Settings")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in table.splitlines()
        if "`" in line[:4]
    ]
    words = {word: row[1] for row in rows for word in re.findall(r"`(\w+)`", row[0])}
    assert words.keys() == TABLE.by_word.keys()
    for word in ("misfire", "overlap", "time_zone"):
        assert words[word] == f"`{TABLE.by_word[word].default}`"
    assert (MAX_VALUE_BYTES, GRACE_MS, CATCH_UP_MS) == (256 << 10, 60_000, 7 * 86_400_000)
