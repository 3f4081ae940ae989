"""Clients in forked processes: use raises at once, the end of blocks does nothing, and the parent's
connection is not touched.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sparrow
import sparrow.testing
from sparrow.testing.running_broker import RunningBroker
from tests.security.certificates import make_certificates

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    # Idle connections live longer than any test here waits.
    with sparrow.testing.broker(default_partitions=1, idle_timeout_ms="1h") as running:
        yield running


HEAD = """
    import asyncio, json, multiprocessing, os, signal, sys, threading
    if sys.argv[2] == "asyncio":
        sys.modules["uvloop"] = None  # as where it is not installed
    import sparrow

    URL = sys.argv[1]
    signal.alarm(100)  # a child that hangs ends by this
    results = {}

    def attempt(name, use):
        try:
            use()
        except Exception as error:
            results[name] = [type(error).__name__, str(error)]
        else:
            results[name] = None
"""


def run(program: str, server: RunningBroker, loop: str, *arguments: str) -> dict[str, Any]:
    """Run a program that must print nothing but its results, and end with 0; return the results."""
    code = textwrap.dedent(HEAD) + textwrap.dedent(program)
    # From Python 3.12 on, forking a process with threads is a warning.
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, server.url, loop, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def assert_refused(results: dict[str, Any]) -> None:
    assert results
    parent, child = results.pop("parent"), results.pop("child")
    for name, error in results.items():
        assert error is not None, f"{name} raised nothing"
        assert error[0] == "UsedAfterFork", (name, error)
        assert f"made in process {parent} and cannot be used in process {child}" in error[1], (name, error)
        assert "connect after the fork" in error[1]


BLOCKING = """
    def child(reading):
        signal.alarm(60)
        results["parent"], results["child"] = os.getppid(), os.getpid()
        admin = client.admin
        attempt("publish", lambda: client.publish("t", b"x"))
        attempt("producer", client.producer)
        attempt("send", lambda: producer.send("t", b"x"))
        attempt("bound send", lambda: send("t", b"x"))
        attempt("flush", producer.flush)
        attempt("delivery", lambda: delivery.result())
        attempt("subscribe", lambda: client.subscribe("t"))
        attempt("next message", lambda: next(messages))
        attempt("pull", lambda: subscription.pull(1))
        attempt("batches", lambda: next(iter(subscription.batches())))
        attempt("commit", subscription.commit)
        attempt("assignment", lambda: subscription.assignment)
        attempt("queue", lambda: client.queue("q"))
        attempt("next job", lambda: next(jobs))
        attempt("lease", lambda: queue.lease(1))
        attempt("queue.publish", lambda: queue.publish(b"x"))
        attempt("queue.flush", queue.flush)
        attempt("describe", queue.describe)
        attempt("ack", job.ack)
        attempt("nack", job.nack)
        attempt("extend", job.extend)
        attempt("ack_nowait", job.ack_nowait)
        attempt("batch.ack", batch.ack)
        attempt("batch.nack_nowait", batch.nack_nowait)
        attempt("list_topics", admin.list_topics)
        attempt("create_queue", lambda: admin.create_queue("q2"))
        attempt("list_sinks", admin.list_sinks)
        attempt("list_webhooks", lambda: admin.list_webhooks("q"))
        attempt("worker", lambda: client.worker("q"))
        attempt("run_workers", client.run_workers)
        attempt("stop_workers", client.stop_workers)
        attempt("channel", client.channel)
        attempt("deliver", lambda: channel.deliver("c", b"x"))
        refused = dict(results)
        results.clear()
        messages.close()
        jobs.close()
        for name, end in {
            "subscription": subscription.close, "queue": queue.close, "producer": producer.close,
            "channel": channel.close, "stop": queue.stop, "drop": client.drop, "close": client.close,
        }.items():
            attempt(name, end)
        attempt("exit", lambda: client.__exit__(None, None, None))
        attempt("exit by an error", lambda: client.__exit__(ValueError, ValueError(), None))
        results["is_connected"] = client.is_connected
        with sparrow.sync.connect(URL) as mine:
            results["mine"] = mine.publish("t", b"from the child").offset >= 0
        print(json.dumps({"refused": refused, "ends": results}))

    def main():
        global client, producer, send, delivery, subscription, messages, queue, jobs, job, batch, channel
        client = sparrow.sync.connect(URL)
        client.admin.create_topic("t")
        for number in range(3):
            client.publish("t", b"%d" % number)
        producer = client.producer(linger_ms=60_000).start()
        send = producer.send
        delivery = producer.send("t", b"pending")
        subscription = client.subscribe("t", start="beginning").start()
        messages = iter(subscription)
        assert next(messages).value == b"0"
        queue = client.queue("q")
        for number in range(20):
            queue.publish(b"%d" % number)
        batch = queue.lease(2, wait_s=20)
        list(batch)
        jobs = iter(queue)
        job = next(jobs)
        channel = client.channel()
        channel.assert_queue("c")
        fork()
        # The parent goes on with the very same connection.
        assert client.is_connected
        job.ack()
        batch.ack()
        next(jobs).ack()
        jobs.close()
        assert next(messages).value == b"1"
        producer.flush()
        assert delivery.result().offset >= 3
        channel.deliver("c", b"x")
        found = client.admin.describe_queue("q")
        assert found.statistics.acknowledged == 4, found
        client.admin.delete_queue("q")
        client.close()
        with sparrow.sync.connect(URL) as again:
            for name in ("t", "c", "q"):
                again.admin.delete_topic(name)
"""

FORKS = {
    "os.fork, and an ordinary end": """
    def fork():
        pid = os.fork()
        if pid == 0:
            child(None)
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    """,
    "os.fork, and os._exit": """
    def fork():
        pid = os.fork()
        if pid == 0:
            child(None)
            sys.stdout.flush()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    """,
    "multiprocessing": """
    def fork():
        process = multiprocessing.get_context("fork").Process(target=child, args=(None,))
        process.start()
        process.join()
        assert process.exitcode == 0
    """,
}


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("fork", FORKS)
def test_blocking_client_in_a_child_process(server: RunningBroker, fork: str, loop: str) -> None:
    program = textwrap.dedent(BLOCKING) + textwrap.dedent(FORKS[fork]) + "\nmain()\n"
    results = run(program, server, loop)
    assert results["ends"].pop("mine") is True
    assert results["ends"].pop("is_connected") is False
    assert all(error is None for error in results["ends"].values()), results["ends"]
    assert_refused(results["refused"])


ASYNC = """
    async def use():
        def try_async(name, call):
            async def awaited():
                return await call()

            async def run_it():
                try:
                    await awaited()
                except Exception as error:
                    results[name] = [type(error).__name__, str(error)]
                else:
                    results[name] = None

            return run_it()

        def sync(call):
            async def called():
                return call()

            return called

        admin = client.admin
        await try_async("publish", lambda: client.publish("t", b"x"))
        await try_async("producer", sync(client.producer))
        await try_async("send", lambda: producer.send("t", b"x"))
        await try_async("bound send", lambda: send("t", b"x"))
        await try_async("bound send to another topic", lambda: send("u", b"x"))
        await try_async("send_nowait", sync(lambda: producer.send_nowait("t", b"x", delay_ms=5)))
        await try_async("flush", producer.flush)
        await try_async("start", producer.start)
        await try_async("delivery", lambda: wait_for(delivery))
        await try_async("subscribe", sync(lambda: client.subscribe("t")))
        await try_async("next message", lambda: anext(messages))
        await try_async("pull", lambda: subscription.pull(1))
        await try_async("commit", subscription.commit)
        await try_async("add", lambda: subscription.add("u"))
        await try_async("drop", lambda: subscription.drop("t"))
        await try_async("queue", sync(lambda: client.queue("q")))
        await try_async("next job", lambda: anext(jobs))
        await try_async("lease", lambda: queue.lease(1))
        await try_async("unused queue", lambda: unused.lease(1))
        await try_async("unused producer", idle.start)
        await try_async("queue.publish", lambda: queue.publish(b"x"))
        await try_async("queue.flush", queue.flush)
        await try_async("ack", sync(job.ack))
        await try_async("extend", sync(job.extend))
        await try_async("nack_nowait", sync(job.nack_nowait))
        await try_async("batch.ack", lambda: batch.ack())
        await try_async("list_topics", admin.list_topics)
        await try_async("ensure_queue", lambda: admin.ensure_queue("q2"))
        await try_async("worker", sync(lambda: client.worker("q")))
        await try_async("run_workers", client.run_workers)
        await try_async("stop_workers", client.stop_workers)
        await try_async("channel", client.channel)
        refused = dict(results)
        results.clear()
        for name, end in {
            "messages": messages.aclose, "jobs": jobs.aclose,
            "subscription": subscription.close, "queue": queue.close, "producer": producer.close,
            "abandon": producer.abandon, "drop": client.drop, "close": client.close,
            "exit": lambda: client.__aexit__(None, None, None),
        }.items():
            await try_async(name, end)
        async with sparrow.connect(URL) as mine:
            results["mine"] = (await mine.publish("t", b"from the child")).offset >= 0
        print(json.dumps({"refused": refused, "ends": results}))

    async def wait_for(delivery):
        return await delivery

    def child():
        signal.alarm(60)
        results["parent"], results["child"] = os.getppid(), os.getpid()
        asyncio.run(use())

    async def main():
        global client, producer, idle, send, delivery, subscription, messages, queue, unused, jobs, job, batch
        client = await sparrow.connect(URL)
        await client.admin.create_topic("t")
        for number in range(3):
            await client.publish("t", b"%d" % number)
        producer = await client.producer(linger_ms=60_000).start()
        idle = client.producer()
        send = producer.send
        delivery = await producer.send("t", b"pending")
        subscription = await client.subscribe("t", start="beginning").start()
        messages = aiter(subscription)
        assert (await anext(messages)).value == b"0"
        queue = client.queue("q")
        unused = client.queue("q")
        for number in range(20):
            await queue.publish(b"%d" % number)
        batch = await queue.lease(2, wait_s=20)
        jobs = aiter(queue)
        job = await anext(jobs)
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        await asyncio.to_thread(process.join)
        assert process.exitcode == 0
        await job.ack()
        await batch.ack()
        await (await anext(jobs)).ack()
        await jobs.aclose()
        assert (await anext(messages)).value == b"1"
        await messages.aclose()
        await producer.flush()
        assert (await delivery).offset >= 3
        assert (await client.admin.describe_queue("q")).statistics.acknowledged == 4
        await client.admin.delete_queue("q")
        await client.close()
        async with sparrow.connect(URL) as again:
            for name in ("t", "q"):
                await again.admin.delete_topic(name)

    if sys.argv[2] == "uvloop":
        import uvloop
        uvloop.run(main())
    else:
        asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_asyncio_client_in_a_child_process(server: RunningBroker, loop: str) -> None:
    results = run(ASYNC, server, loop)
    assert results["ends"].pop("mine") is True
    assert all(error is None for error in results["ends"].values()), results["ends"]
    assert_refused(results["refused"])


HANDLER = """
    from concurrent.futures import ProcessPoolExecutor

    def in_child(queue):
        job = kept["job"]
        signal.alarm(60)
        results["parent"], results["child"] = os.getppid(), os.getpid()
        attempt("ack", job.ack)
        attempt("ack_nowait", job.ack_nowait)
        attempt("release_nowait", job.release_nowait)
        queue.put(dict(results))

    kept = {}

    async def main():
        async with sparrow.connect(URL) as client:
            await client.admin.create_queue("h")
            await client.publish("h", b"x")

            @client.worker("h")
            def handle(job):
                kept["job"] = job
                context = multiprocessing.get_context("fork")
                queue = context.SimpleQueue()
                process = context.Process(target=in_child, args=(queue,))
                process.start()
                print(json.dumps(queue.get()))
                process.join()
                loop.call_soon_threadsafe(asyncio.ensure_future, client.stop_workers())

            loop = asyncio.get_running_loop()
            await client.run_workers()
            assert (await client.admin.describe_queue("h")).statistics.acknowledged == 1
            await client.admin.delete_queue("h")
            await client.admin.delete_topic("h")

    asyncio.run(main())
"""


@pytest.mark.slow
def test_a_child_of_a_workers_thread_cannot_settle_its_job(server: RunningBroker) -> None:
    assert_refused(run(HANDLER, server, "asyncio"))


LONGER = """
    client = sparrow.sync.connect(URL)
    client.admin.create_queue("longer")
    client.publish("longer", b"x")
    queue = client.queue("longer")
    batch = queue.lease(1, wait_s=20)
    assert len(batch) == 1
    pid = os.fork()
    if pid == 0:
        print("alive", flush=True)
        sys.stdin.read()
        os._exit(0)
    sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_child_does_not_keep_its_parents_connection_open(server: RunningBroker, loop: str) -> None:
    code = textwrap.dedent(HEAD) + textwrap.dedent(LONGER)
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, server.url, loop],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    with sparrow.sync.connect(server.url) as client:
        assert process.stdout.readline() == b"alive\n"
        before = client.admin.describe_broker().connections
        process.send_signal(signal.SIGKILL)
        process.wait()
        deadline = time.monotonic() + 60
        while client.admin.describe_broker().connections >= before:
            assert time.monotonic() < deadline, "the child keeps the connection open"
            time.sleep(0.05)
        process.stdin.close()  # the child, which lives, ends
        process.stdout.close()
        client.admin.delete_queue("longer")
        client.admin.delete_topic("longer")


TLS = """
    client = sparrow.sync.connect(URL, ca_file=sys.argv[3])
    client.publish("tls", b"x" * 100_000)
    pid = os.fork()
    if pid == 0:
        results["parent"], results["child"] = os.getppid(), os.getpid()
        attempt("publish", lambda: client.publish("tls", b"x"))
        client.close()
        with sparrow.sync.connect(URL, ca_file=sys.argv[3]) as mine:
            mine.publish("tls", b"mine")
        print(json.dumps(results))
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    client.publish("tls", b"x" * 100_000)
    client.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_child_leaves_its_parents_tls_connection_alone(tmp_path: Path, loop: str) -> None:
    certificates = make_certificates(tmp_path)
    options = {"tls_certificate": certificates.server.certificate, "tls_key": certificates.server.key}
    with sparrow.testing.broker(acl_default="allow", **options) as server:
        assert server.url.startswith("sparrows://")
        assert_refused(run(TLS, server, loop, certificates.ca))


def test_a_descriptor_that_was_closed_and_used_again_is_left_alone(tmp_path: Path) -> None:
    from sparrow.base.forks import Descriptor

    one, other = tmp_path / "one", tmp_path / "other"
    number = os.open(one, os.O_CREAT | os.O_RDWR)
    remembered = Descriptor.of(number)
    assert remembered is not None
    replaced = os.open(other, os.O_CREAT | os.O_RDWR)
    os.dup2(replaced, number)
    os.close(replaced)
    remembered.detach()
    os.write(number, b"kept")
    assert other.read_bytes() == b"kept"
    again = Descriptor.of(number)
    assert again is not None
    again.detach()
    os.write(number, b" and no more")
    os.close(number)
    assert other.read_bytes() == b"kept"
