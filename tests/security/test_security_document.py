"""All commands in docs/security.md work, from the first step to the last."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sparrow.testing
from sparrow.base.settings import options_of
from sparrow.server.config import ServerConfig, load

DOCUMENT = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
BLOCKS = re.findall(r"^```(\w+)( \w+)?\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
FLUSH = "\nproducer.produce('invoices', b'x')\nassert producer.flush(30) == 0\n"


class Walk:
    """Runs block after block in one directory, as a reader would."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config: dict[str, object] = {}
        self.broker: object = None
        self.stop = lambda: None
        self.ports: dict[str, str] = {}

    def block(self, language: str, mark: str, text: str) -> None:
        if language == "yaml":
            self.stop()
            (self.path / "sparrow.yml").write_text(text)
        elif mark == "serve":
            self.serve()
        elif language == "sh":
            self.run(["bash", "-euo", "pipefail", "-c", text])
        elif language == "python":
            self.run([sys.executable, "-W", "error", "-c", text + (FLUSH if mark == "kafka" else "")])

    def serve(self) -> None:
        config, resolved = load({"config": "sparrow.yml"}, {})
        values = resolved.values
        given = {
            each.name: each.kind.show(values[each.name])
            if isinstance(values[each.name], bool)
            else values[each.name]
            for each in options_of(ServerConfig)
            if resolved.sources[each.name] != "default"
        }
        assert config.data_dir == "./sparrow-data"
        running = sparrow.testing.broker(**given)
        broker = running.__enter__()
        self.stop = lambda: running.__exit__(None, None, None)
        self.ports = {"9094": str(broker.port), "9092": broker.kafka.rpartition(":")[2]}

    def run(self, command: list[str]) -> None:
        for documented, real in self.ports.items():
            command = [part.replace(f"localhost:{documented}", f"localhost:{real}") for part in command]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARROW_")}
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        if self.ports:
            environment["SPARROW_URL"] = f"sparrow://localhost:{self.ports['9094']}"
        found = subprocess.run(
            command, cwd=self.path, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert found.returncode == 0, (command, found.stderr)


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl is not installed; on Debian: apt install openssl"
)
def test_the_whole_document_can_be_followed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    walk = Walk(tmp_path)
    try:
        for language, mark, text in BLOCKS:
            walk.block(language, mark.strip(), text)
    finally:
        walk.stop()
    assert len([mark for _, mark, _ in BLOCKS if mark == " serve"]) >= 3
