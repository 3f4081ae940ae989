"""The client for threads has the same methods, arguments, texts and types as the async client."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sparrow
from sparrow import client, sync

ONLY_ASYNC = {
    "Channel": {"subscription"},
    "Client": {"abandon", "queue_with", "shutdown", "subscription"},
    "Producer": {
        "abandon", "alike", "failed", "failure", "next_iteration", "pending_bytes", "room", "send_nowait",
        "settled", "too_large", "topic_gone",
    },
    "Queue": {"abandon", "leased", "more", "prefetcher", "take_over", "topic"},
    "Subscription": {
        "abandon", "advance", "connection_down", "connection_up", "forked", "member_id", "next_batch",
        "positions", "received", "session_ended", "writable",
    },
}  # fmt: skip
"""Methods that parts of the package call on each other, and those that make sense only on the loop.
"""
ITS_OWN = {("Producer", "close")}
"""Methods with other arguments."""
PARTS = ("Admin", "Channel", "Client", "Job", "JobBatch", "Producer", "Queue", "Subscription")


def public(kind: type) -> dict[str, Any]:
    return {
        name: each
        for name, each in inspect.getmembers(kind, lambda each: callable(each) or isinstance(each, property))
        if not name.startswith("_")
    }


@pytest.mark.parametrize("part", PARTS)
def test_every_public_name_of_the_async_client_is_there_for_threads(part: str) -> None:
    missing = set(public(getattr(client, part))) - set(public(getattr(sync, part)))
    assert missing == ONLY_ASYNC.get(part, set())


def shape(method: Any) -> list[tuple[str, Any, Any]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values()]


@pytest.mark.parametrize("part", PARTS)
def test_methods_for_threads_have_the_same_arguments_and_a_text(part: str) -> None:
    for name, method in public(getattr(sync, part)).items():
        of_async = getattr(getattr(client, part), name, None)
        if (part, name) not in ITS_OWN and of_async is not None and not isinstance(method, property):
            assert shape(method) == shape(of_async), name
            assert inspect.getdoc(method) or not inspect.getdoc(of_async), name
            assert not inspect.iscoroutinefunction(method), name


def test_connect_has_the_same_arguments_and_says_what_it_returns() -> None:
    assert shape(sync.connect) == shape(sparrow.connect)
    assert inspect.signature(sync.connect).return_annotation == "Client"
    assert "`with`" in (inspect.getdoc(sync.connect) or "")


def test_made_methods_say_where_they_are_and_nothing_of_async() -> None:
    made = sync.Client.producer
    assert (made.__module__, made.__qualname__) == ("sparrow.sync.client", "Client.producer")
    for part in PARTS:
        for name, method in public(getattr(sync, part)).items():
            assert "async with" not in (inspect.getdoc(method) or ""), (part, name)


PROGRAM = """\
import sparrow.sync

with sparrow.sync.connect("sparrow://127.0.0.1:9094", token="t") as client:
    reveal_type(client.admin.create_topic("a", partitions=3))
    reveal_type(client.publish("a", b"x", delay_ms=3))
    reveal_type(client.admin.list_access_rules(name="a"))
    reveal_type([job for job in client.queue("q")])
    client.admin.create_topic(1)
    client.admin.create_topic("a", parts=1)
    client.producer(linger=1)
    client.nothing()
"""
REVEALED = [
    '"sparrow.model.topics.TopicDescription"',
    '"sparrow.client.batch.RecordMetadata"',
    '"list[sparrow.model.access.AccessRule]"',
    '"list[sparrow.client.blocking_jobs.BlockingJob]"',
]
WRONG = {
    8: 'incompatible type "int"; expected "str"',
    9: 'Unexpected keyword argument "parts"',
    10: 'Unexpected keyword argument "linger"',
    11: 'has no attribute "nothing"',
}


@pytest.mark.slow
def test_a_type_checker_sees_methods_arguments_and_results(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent", str(program)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    for each in REVEALED:
        assert f"Revealed type is {each}" in found.stdout.replace("builtins.", ""), found.stdout
    errors = {int(each.split(":")[1]): each for each in found.stdout.splitlines() if ": error: " in each}
    assert errors.keys() == WRONG.keys(), found.stdout
    for line, text in WRONG.items():
        assert text in errors[line]
