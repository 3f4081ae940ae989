"""`sparrow pipeline run` in its own process: it runs, reports progress, and ends cleanly on
request.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import sparrow.sync
from tests.spark.class_archive import java, short_lived

PIPELINE = """\
name: orders
trigger: {every: 100 ms}
flows:
  clean:
    from: orders
    decode: {json: {schema: "id bigint, amount double"}}
    steps:
      - sql: SELECT id, amount * 2 AS amount FROM input
    expect:
      - {name: positive, check: amount > 0}
    dead_letters: orders.dead
    to: {topic: clean, key: id}
"""


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.skipif(not java(), reason="Spark needs Java, and there is none")
def test_run_goes_on_until_it_is_interrupted_and_then_ends_in_peace(broker, tmp_path):
    (tmp_path / "orders.yml").write_text(PIPELINE)
    with sparrow.sync.connect(broker.url) as client:
        client.admin.create_topic("orders", partitions=1)
        for number in range(4):
            client.publish("orders", b'{"id": %d, "amount": %d}' % (number, number))
    run = subprocess.Popen(
        [sys.executable, "-m", "sparrow", "pipeline", "run", "orders.yml", "--json", "--master", "local[1]"],
        cwd=tmp_path,
        env={**os.environ, "SPARROW_URL": broker.url, "SPARK_SUBMIT_OPTS": short_lived()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for_rows(run, broker, 3)
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=120)
    finally:
        run.kill()
        run.wait()
    lines = [json.loads(line) for line in out.splitlines()]
    (outcome,) = [line["outcome"] for line in lines if "outcome" in line]
    assert run.returncode == 130, err
    assert "the flows end after their running batch" in err
    assert (outcome["flow"], outcome["progress"]["state"], outcome["failure"]) == ("clean", "stopped", None)
    assert outcome["progress"]["rows"] == 4
    assert outcome["progress"]["refused"] == {"positive": 1}
    assert {line["progress"]["state"] for line in lines if "progress" in line} >= {"running", "stopped"}


def wait_for_rows(run, broker, count):
    """Wait until the sink's topic and that of the dead letters have all their rows."""
    deadline = time.monotonic() + 300
    with sparrow.sync.connect(broker.url) as client:
        while time.monotonic() < deadline and run.poll() is None:
            ends = {
                topic.name: sum(each.offset for each in client.admin.offsets(topic.name))
                for topic in client.admin.list_topics()
                if topic.name in ("clean", "orders.dead")
            }
            # A transaction's end is an offset, too.
            if ends.get("clean", 0) > count and ends.get("orders.dead", 0) > 1:
                return
            time.sleep(0.2)
    run.kill()
    raise AssertionError(f"no rows came; {run.communicate()}")


@pytest.mark.slow
def test_run_without_a_broker_says_so_before_spark_starts(tmp_path):
    (tmp_path / "orders.yml").write_text(PIPELINE)
    done = subprocess.run(
        [sys.executable, "-m", "sparrow", "--url", "sparrow://127.0.0.1:1", "pipeline", "run", "orders.yml"],
        cwd=tmp_path,
        env={**os.environ, "JAVA_HOME": "/nowhere"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 69
    assert done.stderr.startswith("sparrow: no broker can be reached at 127.0.0.1:1: Connection refused")
