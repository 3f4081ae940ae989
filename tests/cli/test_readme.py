"""All commands and programs of the README work."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import sparrow.testing

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)( \w+)?\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
SHELL = [text for language, mark, text in BLOCKS if language == "sh" and not mark]
PYTHON = [text for language, mark, text in BLOCKS if language == "python" and not mark]
(SERVE,) = [text for _, mark, text in BLOCKS if mark == " serve"]
(WORKER,) = [text for _, mark, text in BLOCKS if mark == " worker"]
PLAIN = [text for language, _, text in BLOCKS if not language]
SETTLED = re.compile(r"^sparrow: 1 record (acknowledged|rejected)\n", re.MULTILINE)
"""The line that `sparrow queue lease` prints after the records."""
DEFAULT_URL = "sparrow://127.0.0.1:9094"
DEFAULT_KAFKA = "localhost:9092"
DEFAULT_HTTP = "http://127.0.0.1:9095"
YAML = [text for language, _, text in BLOCKS if language == "yaml"]


@pytest.fixture(scope="module")
def broker():
    with sparrow.testing.broker() as running:
        yield running


def environment(broker):
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SPARROW_URL": broker.url,
    }


def run(command, broker, tmp_path):
    return subprocess.run(
        command,
        cwd=tmp_path,
        env=environment(broker),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
def test_shell_blocks_run_in_the_order_of_the_document(tmp_path):
    """All blocks share one broker: a later block may use topics of an earlier one."""
    without_curl = shutil.which("curl") is None
    with sparrow.testing.broker() as fresh:
        for text in SHELL:
            if "curl" in text and without_curl:
                continue
            found = run(
                ["bash", "-euo", "pipefail", "-c", text.replace(DEFAULT_HTTP, fresh.http)], fresh, tmp_path
            )
            assert (found.returncode, SETTLED.sub("", found.stderr)) == (0, ""), text
            assert found.stdout.strip(), text
            assert "urn:sparrow:error" not in found.stdout, text
            if "consume numbers --max 5" in text:
                assert "\n1\n2\n3\n4\n5\n" in found.stdout
    if without_curl:
        pytest.skip("the blocks with curl did not run: make setup installs it where apt-get may be used")


@pytest.mark.slow
@pytest.mark.parametrize("text", YAML)
def test_configuration_file_is_right(text, broker, tmp_path):
    (tmp_path / "sparrow.yml").write_text(text)
    found = run(["sparrow", "config", "check"], broker, tmp_path)
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("text", PYTHON)
def test_python_block_runs(text, broker, tmp_path):
    text = text.replace(DEFAULT_URL, broker.url).replace(DEFAULT_KAFKA, broker.kafka)
    found = run([sys.executable, "-W", "error", "-c", text], broker, tmp_path)
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.slow
def test_serve_block_starts_a_broker_in_the_working_directory(tmp_path):
    with sparrow.testing.broker() as free:
        port = free.port  # free again after a moment
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "SPARROW_NATIVE_PORT": str(port)}
    process = subprocess.Popen(
        ["bash", "-c", f"exec {SERVE}"], cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    banner = [process.stderr.readline() for _ in range(7)]
    process.terminate()
    process.stderr.read()
    process.stderr.close()
    assert process.wait(30) == 0
    assert f"sparrow://127.0.0.1:{port}" in banner[1]
    assert str(tmp_path / "sparrow-data") in banner[5]
    assert (tmp_path / "sparrow-data" / ".clean").exists()


@pytest.mark.slow
def test_worker_block_handles_a_message_and_ends_when_interrupted(tmp_path):
    with sparrow.testing.broker() as broker:
        _interrupt_worker(broker, tmp_path)


def _interrupt_worker(broker, tmp_path):
    with sparrow.sync.connect(broker.url) as client:
        client.queue("emails").publish(b"to: dave")
    text = WORKER.replace(DEFAULT_URL, broker.url)
    process = subprocess.Popen(
        [sys.executable, "-u", "-W", "error", "-c", text],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    printed = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert printed == "sending b'to: dave' for the 1 time\n"


def test_other_blocks_are_make_targets_and_pip():
    commands = [line for text in PLAIN for line in text.splitlines()]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for command in commands:
        assert command.startswith("pip install ") or command.removeprefix("make ") in targets


def test_documents_that_are_linked_exist():
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
