"""Queues for threads, against a fake broker that runs on its own loop, and a real one."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest

import sparrow
import sparrow.testing
from sparrow.base.errors import InvalidArgument, LeaseExpired, NotLeased
from sparrow.testing.running_broker import RunningBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with sparrow.testing.broker(default_partitions=1) as running:
        yield running


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[sparrow.sync.Client]:
    with sparrow.sync.connect(broker.url) as connected:
        yield connected


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return request.node.name[:40].rstrip("-_[]") + str(time.time_ns())


def filled(client: sparrow.sync.Client, name: str, count: int) -> sparrow.sync.Queue:
    queue = client.queue(name)
    with client.producer() as producer:
        topic = queue.describe().topics[0] if name in [q.name for q in client.admin.list_queues()] else name
        client.admin.create_queue(name)
        for number in range(count):
            producer.send(topic, b"%d" % number)
    return queue


def test_jobs_are_taken_and_settled(client: sparrow.sync.Client, name: str) -> None:
    with filled(client, name, 30) as queue:
        seen = []
        for job in queue:
            assert isinstance(job, sparrow.sync.Job)
            seen.append(job.value)
            if job.offset == 3:
                job.extend(60)
                job.reject("no use")
            elif job.offset == 4:
                job.nack(3600, error="later")
            else:
                job.ack()
            if len(seen) == 10:
                break
        assert seen == [b"%d" % i for i in range(10)]
        with pytest.raises(NotLeased):
            job.ack()
        statistics = queue.statistics()
        assert (statistics.acknowledged, statistics.delayed, statistics.rejected) == (8, 1, 1)
        deadline = time.monotonic() + 30
        while [record.offset for record in queue.peek(2, states=["ready"])] != [
            10,
            11,
        ]:  # jobs that were not handed out are released
            assert time.monotonic() < deadline
            time.sleep(0.002)


def test_settlements_without_waiting_are_flushed(client: sparrow.sync.Client, name: str) -> None:
    with filled(client, name, 500) as queue:
        for count, job in enumerate(queue, 1):
            job.ack_nowait()
            if count == 500:
                break
        queue.flush()
        assert queue.statistics().acknowledged == 500
        assert queue.failures == []


def test_a_batch_is_settled_by_range(client: sparrow.sync.Client, name: str) -> None:
    with filled(client, name, 300) as queue:
        batch = queue.lease(200, wait_s=5)
        assert batch.values == [b"%d" % i for i in range(200)]
        jobs = batch.jobs
        jobs[7].reject("no use")
        batch.extend(60)
        batch.ack()
        rest = queue.lease(200, wait_s=5)
        assert len(rest) == 100
        rest.nack(3600)
        assert not queue.lease(5, wait_s=0)
        statistics = queue.statistics()
        assert (statistics.acknowledged, statistics.rejected, statistics.delayed) == (199, 1, 100)


def test_threads_share_an_iteration(client: sparrow.sync.Client, name: str) -> None:
    queue = filled(client, name, 200)
    seen: list[list[int]] = [[] for _ in range(4)]
    barrier = threading.Barrier(4, timeout=30)

    def work(mine: list[int]) -> None:
        for job in queue:
            mine.append(job.offset)
            if len(mine) == 1:
                barrier.wait()
            job.ack()
            if sum(map(len, seen)) == 200:
                queue.stop()

    threads = [threading.Thread(target=work, args=(mine,)) for mine in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert sorted(offset for mine in seen for offset in mine) == list(range(200))
    queue.close()


def test_a_lease_that_ended_is_an_error(client: sparrow.sync.Client, name: str) -> None:
    client.admin.create_queue(name, policy={"lease_ms": 100, "backoff_ms": 60_000})
    with client.queue(name) as queue:
        queue.publish(b"one")
        (job,) = queue.lease(1, wait_s=5)
        deadline = time.monotonic() + 30
        while queue.statistics().leased and time.monotonic() < deadline:
            time.sleep(0.01)
        with pytest.raises(LeaseExpired):
            job.ack()


def test_workers_work_in_threads_until_another_thread_stops_them(
    client: sparrow.sync.Client, name: str
) -> None:
    queue = filled(client, name, 50)
    done: list[bytes | None] = []

    @client.worker(name, concurrency=4)
    def handle(job: sparrow.sync.Job) -> None:
        if job.offset == 5 and job.delivery_count == 1:
            raise ValueError("once")
        done.append(job.value)
        if len(done) == 50:
            threading.Thread(target=client.stop_workers).start()

    client.run_workers()
    assert sorted(done, key=lambda value: int(value or b"")) == [b"%d" % i for i in range(50)]
    assert queue.statistics().unfinished == 0
    queue.close()


def test_an_interrupt_stops_the_workers_gracefully(client: sparrow.sync.Client, name: str) -> None:
    filled(client, name, 3).close()
    done: list[bytes | None] = []
    main_thread = threading.main_thread().ident
    assert main_thread is not None

    @client.worker(name)
    def handle(job: sparrow.sync.Job) -> None:
        signal.pthread_kill(main_thread, signal.SIGINT)
        (worker,) = client._inner._workers._workers
        while not worker._is_stopping:
            time.sleep(0.01)
        done.append(job.value)

    with pytest.raises(KeyboardInterrupt):
        client.run_workers(shutdown_timeout_s=30, handle_signals=False)
    assert done == [b"0"]


def test_a_blocking_verb_on_the_clients_thread_is_refused(client: sparrow.sync.Client, name: str) -> None:
    filled(client, name, 1).close()
    outcome: list[object] = []

    @client.worker(name)
    async def handle(job: sparrow.Job) -> None:
        try:
            client.admin.list_queues()
        except InvalidArgument as error:
            outcome.append(error)
        client._inner._workers._workers[0].stop()

    client.run_workers()
    assert outcome


def test_the_queue_has_the_names_of_the_async_one() -> None:
    names = {name for name in dir(sparrow.Queue) if not name.startswith("_")}
    assert names - {name for name in dir(sparrow.sync.Queue) if not name.startswith("_")} == {
        "abandon",  # `with` does it
        "leased",
        "more",
        "prefetcher",
        "take_over",
        "topic",
    }
    for kind, blocking in ((sparrow.Job, sparrow.sync.Job), (sparrow.JobBatch, sparrow.sync.JobBatch)):
        assert {name for name in dir(kind) if not name.startswith("_")} <= set(dir(blocking))
