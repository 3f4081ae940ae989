"""All commands of docs/http.md work."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sparrow.testing
from sparrow.testing.running_broker import RunningBroker

DOCUMENT = (Path(__file__).parents[2] / "docs" / "http.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
SHELL = [text for language, text in BLOCKS if language == "sh"]
URL = "http://127.0.0.1:9095"


@pytest.fixture
def server() -> Iterator[RunningBroker]:
    with sparrow.testing.broker(default_partitions=1) as running:
        yield running


@pytest.mark.skipif(
    shutil.which("curl") is None,
    reason="curl is not installed; make setup installs it where apt-get may be used",
)
@pytest.mark.slow
def test_every_block_of_shell_runs_in_the_order_of_the_document(
    server: RunningBroker, tmp_path: Path
) -> None:
    native = {"SPARROW_URL": server.url, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for text in SHELL:
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text.replace(URL, server.http)],
            cwd=tmp_path,
            env={**os.environ, **native},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (ended.returncode, ended.stderr) == (0, ""), text
        assert ended.stdout.strip(), text
        assert "urn:sparrow:error" not in ended.stdout, (text, ended.stdout)


@pytest.mark.parametrize("text", [text for language, text in BLOCKS if language == "json"])
def test_every_block_of_json_is_json(text: str) -> None:
    for line in text.splitlines():
        json.loads(line)
