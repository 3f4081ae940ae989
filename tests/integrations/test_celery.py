"""Celery with its own worker on queues of a real broker."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import kombu.pools
import pytest
from celery import chain, chord, group
from celery.contrib.testing.worker import start_worker

import sparrow.sync
from sparrow.integrations.kombu import due_of, name_of
from sparrow.testing.running_broker import RunningBroker
from tests.integrations.conftest import EXAMPLES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
WAIT_S = 60


@pytest.fixture
def celery_app(broker: RunningBroker) -> Any:
    example = importlib.import_module("celery_app")
    example.app.conf.worker_hijack_root_logger = False
    yield example
    kombu.pools.reset()  # else its connections go on until the process ends
    example.app.backend.close()
    example.app.close()


def test_tasks_canvas_delays_retries_and_dead_letters_work(broker: RunningBroker, celery_app: Any) -> None:
    app, add = celery_app.app, celery_app.add
    with start_worker(app, pool="threads", concurrency=2, perform_ping_check=False):
        began = time.monotonic()
        later = add.apply_async((1, 1), countdown=1.5)
        assert add.delay(2, 3).get(timeout=WAIT_S) == 5
        assert chain(add.s(1, 2), add.s(10), add.s(100)).delay().get(timeout=WAIT_S) == 113
        assert sorted(group(add.s(n, n) for n in range(4)).delay().get(timeout=WAIT_S)) == [0, 2, 4, 6]
        assert chord([add.s(n, 1) for n in range(3)])(celery_app.total.s()).get(timeout=WAIT_S) == 6
        assert celery_app.flaky.delay(2).get(timeout=WAIT_S) == 2
        celery_app.refused.delay("no such address")
        assert later.get(timeout=WAIT_S) == 2
        later.forget()
        deadline = time.monotonic() + WAIT_S
        while app.AsyncResult(later.id).state != "PENDING":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert time.monotonic() - began >= 1.5
        with sparrow.sync.connect(broker.url) as client:
            deadline = time.monotonic() + WAIT_S
            while client.admin.describe_queue("celery").statistics.dead < 1:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            (letter,) = client.admin.dead_letters("celery")
            assert letter.reason
    with sparrow.sync.connect(broker.url) as client:
        assert client.admin.describe_queue("celery").statistics.leased == 0


def test_the_command_with_its_default_pool_runs_canvas_and_eta(
    broker: RunningBroker, celery_app: Any, tmp_path: Path
) -> None:
    add = celery_app.add
    log = tmp_path / "log"
    with log.open("wb") as file:
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "celery_app", "worker", "-c", "2",
             "--without-gossip", "--without-mingle"],
            cwd=EXAMPLES, stdout=file, stderr=file, env={**os.environ, "SPARROW_URL": broker.url},
        )  # fmt: skip
    try:
        eta = datetime.now(UTC) + timedelta(seconds=1)
        later = add.apply_async((1, 1), eta=eta)
        assert add.delay(2, 3).get(timeout=WAIT_S) == 5, log.read_text()
        assert chain(add.s(1, 2), add.s(10)).delay().get(timeout=WAIT_S) == 13
        assert sorted(group(add.s(n, n) for n in range(4)).delay().get(timeout=WAIT_S)) == [0, 2, 4, 6]
        assert chord([add.s(n, 1) for n in range(3)])(celery_app.total.s()).get(timeout=WAIT_S) == 6
        assert later.get(timeout=WAIT_S) == 2
        assert datetime.now(UTC) >= eta
        worker.terminate()
        assert worker.wait(WAIT_S) == 0, log.read_text()
    finally:
        worker.kill()
        worker.wait()
    assert "(prefork)" in log.read_text()
    with sparrow.sync.connect(broker.url) as client:
        statistics = client.admin.describe_queue("celery").statistics
        assert (statistics.unfinished, statistics.redelivered, statistics.dead) == (0, 0, 0)


def test_a_connection_that_ends_releases_its_messages(broker: RunningBroker, celery_app: Any) -> None:
    app = celery_app.app
    celery_app.add.apply_async((1, 2), priority=9)
    with app.connection_for_read() as connection:
        channel = connection.channel()
        queue = app.amqp.queues["celery"](channel)
        message = queue.get()
        assert message is not None
        assert not message.delivery_info.get("redelivered")
    with sparrow.sync.connect(broker.url) as client:
        statistics = client.admin.describe_queue("celery").statistics
        assert (statistics.ready, statistics.leased) == (1, 0)
        (job,) = client.queue("celery").lease(1).jobs
        assert job.delivery_count == 1
        assert dict(job.headers)["priority"] == b"9"


def test_names_and_times_of_celery_are_read() -> None:
    assert name_of("celery@host.celery.pidbox") == "celery-host.celery.pidbox"
    soon = datetime.now(UTC) + timedelta(minutes=5)
    assert due_of({"headers": {"eta": soon.isoformat()}}) == soon
    for headers in ({}, None, {"eta": None}, {"eta": "soon"}, {"eta": "2001-01-01T00:00:00"}):
        assert due_of({"headers": headers}) is None
