"""The examples of docs/seeds.md work, and its settings exist."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import sparrow.testing
from sparrow.frontends.seeds.names import topic_of
from sparrow.frontends.seeds.settings import SeedSettings
from sparrow.testing.running_broker import RunningBroker

DOCUMENT = (Path(__file__).parents[2] / "docs" / "seeds.md").read_text()
PORTS = {
    "8080": "diy_message_broker",
    "3000": "messagebroker",
    "9990": "mbus",
    "9991": "mbus_consumer",
    "5671": "msbq",
    "10000": "syncbrok",
}


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    listeners = ("diy", "messagebroker", "mbus", "mbus_consumer", "msbq", "syncbrok")
    with sparrow.testing.broker(**{f"seeds_{name}_port": 0 for name in listeners}) as running:
        yield running


def shown(running: RunningBroker, title: str) -> str:
    """Return the output of the first Python block below a title."""
    section = DOCUMENT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    block = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert block is not None
    program = re.sub(r'\("127.0.0.1", (\d+)\)', lambda found: repr(running.seeds[PORTS[found[1]]]), block[1])
    program = program.replace("127.0.0.1:10000", f"127.0.0.1:{running.seeds['syncbrok'][1]}")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, title, "exec"), {"__name__": title})
    return printed.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("title", "prints"),
    [
        ("diy_message_broker", ["a first ticket", "Goodbye from server"]),
        ("messagebroker", ["1 b'news' b'hello'"]),
        ("Message Bus (mbus)", ["smoke\\n"]),
        ("msbq", ["two b'a picture to scale'"]),
        ("Syncbrok", ["new queue with name : orders", "new subscriber for queue  : orders"]),
    ],
)
def test_the_clients_of_the_document_work(running: RunningBroker, title: str, prints: list[str]) -> None:
    printed = shown(running, title)
    assert all(text in printed for text in prints), printed


def test_the_settings_of_the_document_are_the_defaults() -> None:
    defaults = SeedSettings()
    for name, value in (
        ("ack_timeout", f"{defaults.ack_timeout_ms // 1000} s"),
        ("ack_delay", f"{defaults.ack_delay_ms // 1000} s"),
        ("redeliveries", str(defaults.redeliveries)),
    ):
        assert f"| `seeds.messagebroker.{name}` | {value} |" in DOCUMENT
    assert f"| `seeds.msbq.stall_timeout` | {defaults.stall_timeout_ms // 1000} s |" in DOCUMENT
    assert "| `seeds.syncbrok.private_endpoints` | true |" in DOCUMENT
    assert f"| `seeds.syncbrok.timeout` | {defaults.endpoint_timeout_ms // 60_000} min |" in DOCUMENT
    assert defaults.private_endpoints


def test_the_name_of_the_document_is_the_one_that_is_made() -> None:
    assert f"`topic a` is the topic `{topic_of(b'topic a')}`" in DOCUMENT
