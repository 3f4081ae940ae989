"""The commands and programs for Spark in README and documents work, in one session, on one broker,
in the order of each document.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import sparrow.sync
import sparrow.testing
from sparrow.cli import main

ROOT = Path(__file__).parents[2]
DEFAULT_URL = "sparrow://127.0.0.1:9094"
BLOCK = re.compile(r"^```(\w+)( \w+)?\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(document: str, mark: str) -> list[tuple[str, str]]:
    """Return (language, text) of the blocks that run here."""
    found = BLOCK.findall((ROOT / document).read_text())
    return [(language, text) for language, marked, text in found if marked.strip() == mark]


@pytest.fixture
def here(broker, tmp_path, monkeypatch):
    """Change to an empty folder, with a broker that has some orders and numbers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPARROW_URL", broker.url)
    with sparrow.sync.connect(broker.url) as client, client.producer() as producer:
        for number in range(100):
            producer.send(
                "orders", b'{"id": %d, "amount": %d.5}' % (number, number), key=b"k%d" % (number % 7)
            )
            producer.send("numbers", b"%d" % number)
    return broker


def run(language: str, text: str, names: dict[str, Any], capfd) -> None:
    if language == "python":
        # The JVM has the environment of its start, so the address that a block leaves out, or has
        # by default, is inserted.
        text = text.replace(f'.option("url", "{DEFAULT_URL}")', "").replace(DEFAULT_URL, names["url"])
        text = text.replace('.format("sparrow")', f'.format("sparrow").option("url", "{names["url"]}")')
        # Its folder is inserted, too: Spark looks for relative paths there.
        text = re.sub(r'"(table|checkpoints)/', rf'"{Path.cwd()}/\1/', text)
        exec(compile(text, "block", "exec"), names)
        return
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            assert words[0] == "sparrow", line
            code = main(words[1:])
            said = capfd.readouterr()
            assert code == 0, f"{line}\n{said.err}"


@pytest.mark.parametrize(
    ("document", "mark"), [("README.md", "spark"), ("docs/spark.md", ""), ("docs/pipelines.md", "")]
)
def test_blocks_run_in_the_order_of_the_document(document, mark, spark, here, capfd):
    names: dict[str, Any] = {"__name__": "__main__", "spark": spark, "url": here.url}
    found = [each for each in blocks(document, mark) if each[0] in {"python", "sh"}]
    assert found
    with contextlib.ExitStack() as ended:
        ended.callback(lambda: [query.stop() for query in spark.streams.active])
        for language, text in found:
            run(language, text, names, capfd)
