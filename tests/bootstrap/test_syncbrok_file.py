"""Syncbrok's own file: accepted unchanged, translated to Sparrow's options, and refused with a line
if it is neither format.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from sparrow.base.errors import InvalidConfig
from sparrow.frontends.seeds.syncbrok_queues import ENDPOINT, POLICY, subscriber_of
from sparrow.server.bootstrap.endpoints import EndpointDeclaration
from sparrow.server.bootstrap.queues import QueueDeclaration
from sparrow.server.config import load, seed_ports

FILE = """\
Queues: 
  simple :
    urls :
      - "http://localhost:10000/msg"
  test:
    urls :
        - "http://localhost:20000/"
        - "http://10.0.0.1/x?y=1"
  whatever:
"""  # noqa: W291 - as such files look


def declared(name: str, *urls: str) -> QueueDeclaration:
    names = tuple(map(subscriber_of, urls))
    endpoints = tuple(
        EndpointDeclaration(name, {**ENDPOINT, "url": url}, None, is_trusted=True)
        for name, url in zip(names, urls, strict=True)
    )
    return QueueDeclaration(name, (name,), 1, POLICY, names, endpoints)


def test_queues_are_parented_with_a_subscriber_for_each_url_and_the_listener_is_open(read):
    config = read(FILE)
    assert config.queues == (
        declared("simple", "http://localhost:10000/msg"),
        declared("test", "http://localhost:20000/", "http://10.0.0.1/x?y=1"),
        declared("whatever"),
    )
    assert seed_ports(config) == {"syncbrok": 10000}
    assert config.data_dir == "./sparrow-data"


def test_the_directory_of_storage_gets_a_directory_of_ours(read):
    assert read("Storage: {path: /var/lib/syncbrok/}").data_dir == "/var/lib/syncbrok/sparrow-data"
    assert read("Storage: {path: temp}\nQueues:").data_dir == "temp/sparrow-data"
    assert read("Storage:\nQueues: {a: }").data_dir == "./sparrow-data"
    assert read("Storage: {path: /}").data_dir == "/sparrow-data"


def test_names_and_keys_are_read_in_lower_case_as_the_original_does(read):
    config = read("QUEUES: {Orders: {URLS: ['http://A.example.org/X']}}\nsTORAGE: {Path: X}")
    assert config.queues == (declared("orders", "http://A.example.org/X"),)
    assert config.data_dir == "X/sparrow-data"


@pytest.mark.parametrize(
    "text",
    [
        "queues: {a: {urls: [http://x]}}",
        "Queues: {a: {urls: http://x}}",
        "queues: {a: {urls: http://x}}\nstorage: ",
    ],
)
def test_small_letters_and_a_single_url_will_do(read, text):
    assert read(text).queues == (declared("a", "http://x"),)


def test_urls_in_one_text_are_split_at_commas_as_the_original_does(read):
    assert read("Queues: {a: {urls: 'http://x,http://y'}}").queues == (declared("a", "http://x", "http://y"),)


def test_the_list_of_names_of_its_first_version_will_do(read):
    assert [queue.name for queue in read("Queues:\n  - simple\n  - test\n").queues] == ["simple", "test"]


def test_a_name_that_no_topic_can_have_is_made_one(read):
    (queue,) = read("Queues: {my queue: }").queues
    assert re.fullmatch(r"my-queue\.[0-9a-f]{10}", queue.name)


def test_flags_and_variables_are_added_to_it(write):
    path = write(FILE)
    flags = {"config": str(path), "data_dir": "x", "seeds_syncbrok_port": "0"}
    config, resolved = load(flags, {"SPARROW_KAFKA_PORT": "off"})
    assert (config.data_dir, seed_ports(config), config.kafka_port) == ("x", {"syncbrok": 0}, -1)
    assert resolved.sources["queues"] == f"{path}:1"


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("Queues: {a: {url: []}}", [(1, "a queue has no setting 'url'; did you mean 'urls'?")]),
        ("Queues:\n  a:\n    urls: [1, 'ftp://x']", [(3, "url must be text"), (3, "url begins with 'ftp'")]),
        ("Queues: {a: 5}", [(1, "a queue is a mapping with urls, not 5")]),
        ("Queues: 5", [(1, "Queues is a mapping of names, each with urls, not 5")]),
        ("Queues: {a: , A: }", [(1, "'a' occurs twice: names are read in lower case")]),
        ("Queues: {'': }", [(1, "a queue needs a name")]),
        ("Queues:\nqueues:", [(1, "there is no option 'Queues'; did you mean 'queues'?")]),
        (
            "Storage:\n  dir: x\n  path: [x]",
            [(2, "Storage has no setting 'dir'"), (3, "Storage.path is the path")],
        ),
        ("Storage: x", [(1, "Storage is a mapping with a path, not 'x'")]),
        ("Queues:\nHandlers: []", [(2, "first version had Handlers; write the urls")]),
        ("Queue: {a: }\nStorage:", [(1, "'Queue' is nothing that Syncbrok knows; did you mean 'queues'?")]),
        ("Queues:\n  a:\nkafka:\n  port: 1", [(3, "Its file has Storage and Queues only; to set more")]),
        ("Queues: {a: , a: }", [(1, "'a' occurs twice")]),
    ],
)
def test_wrong_or_mixed_entries_are_refused_with_their_line(write, text, faults):
    path = write(text)
    with pytest.raises(InvalidConfig) as caught:
        load({"config": path.name}, {})
    lines = caught.value.text.splitlines()
    assert len(lines) == len(faults)
    for line, (number, words) in zip(lines, faults, strict=True):
        assert line.startswith(f"sparrow.yml:{number}: ")
        assert words in line


# ── from the file to the endpoint ─────────────────────────────────────────────────────────────────


class Endpoint(BaseHTTPRequestHandler):
    """An endpoint that accepts a message when it is sent for the second time."""

    server: Received

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.bodies.append(json.loads(body))
        answer = b"true" if self.server.bodies.count(json.loads(body)) > 1 else b"false"
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class Received(HTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Endpoint)
        self.bodies: list[dict[str, str]] = []


@pytest.fixture
def endpoint() -> Iterator[Received]:
    with Received() as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield server
        server.shutdown()
        serving.join()


def serve(directory: Path, ready: Path) -> subprocess.Popen[str]:
    ports = ("--native-port", "0", "--kafka-port", "off", "--http-port", "off", "--seeds-syncbrok-port", "0")
    return subprocess.Popen(
        [
            Path(sys.executable).parent / "sparrow",
            "serve",
            "--config",
            "config.yml",
            "--ready-file",
            ready,
            *ports,
        ],
        cwd=directory,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SPARROW_RESERVE": "0"},
    )


@pytest.mark.slow
def test_a_client_of_syncbrok_works_with_the_file_alone(write, directory, endpoint):
    write("left by Syncbrok", "temp/orders")
    write(
        "Storage:\n  path: temp/\nQueues:\n  orders:\n    urls: "
        f"['http://127.0.0.1:{endpoint.server_port}/']\n",
        "config.yml",
    )
    ready = directory / "ready"
    process = serve(directory, ready)
    try:
        deadline = time.monotonic() + 20
        while not ready.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        client = http.client.HTTPConnection(json.loads(ready.read_text())["seeds"]["syncbrok"], timeout=10)
        client.request("POST", "/msg", b"hello", {"queue": "orders"})
        answer = client.getresponse()
        found = answer.read().decode()
        client.close()
        assert answer.status == 200
        while len(endpoint.bodies) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    assert endpoint.bodies == [{"id": found, "content": base64.b64encode(b"hello").decode()}] * 2
    assert sorted(each.name for each in (directory / "temp").iterdir()) == ["orders", "sparrow-data"]
