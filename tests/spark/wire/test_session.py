"""Sessions: calls, lost connections, brokers that cannot be reached, sessions that are kept."""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

import sparrow.testing
from sparrow.base.errors import (
    ConnectionLost,
    InvalidArgument,
    NotAuthenticated,
    Overloaded,
    ProtocolError,
    SparrowError,
    TimedOut,
    UnknownQueue,
    UnknownTopic,
    UsedAfterFork,
)
from sparrow.protocol.native import messages as m
from sparrow.spark.wire import FetchWanted, Session, Target, connect
from sparrow.spark.wire import session as link_module
from sparrow.spark.wire.pool import KEPT_PER_TARGET, Pool
from tests.native_frontend.raw import batch_of, values_of
from tests.security.certificates import Certificates, make_certificates
from tests.spark.wire.peers import Peer, Script, peer, welcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparrow.protocol.native.connection import Connection
    from sparrow.testing.running_broker import RunningBroker


SECONDS = 30


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "BACKOFF_INITIAL_S", 0.01)


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with sparrow.testing.broker() as broker:
        yield broker


@pytest.fixture
def session(broker: RunningBroker) -> Iterator[Session]:
    with connect(Target(broker.url)) as made:
        yield made


def publish(session: Session, topic: str, *values: bytes) -> None:
    session.call("topic.ensure", {"name": topic})
    channel = session.open_channel(m.OpenProducer(idempotent=False))
    channel.send(m.Publish(1, topic, 0), batch_of(*values))
    channel.receive()
    channel.close()


# ── calls and channels ────────────────────────────────────────────────────────────────────────────


def test_a_call_brings_its_result_or_its_error(session: Session) -> None:
    assert session.call("topic.create", {"name": "orders", "partitions": 3})["partition_count"] == 3
    assert session.call("topic.describe", {"name": "orders"})["name"] == "orders"
    with pytest.raises(UnknownTopic, match="none"):
        session.call("topic.describe", {"name": "none"})
    assert [each["name"] for each in session.call("topic.list")["topics"]] == ["orders"]


def test_a_channel_publishes_and_ends_with_closed(session: Session) -> None:
    publish(session, "orders", b"a", b"b")
    chunk = session.fetch(FetchWanted("orders"))
    assert values_of(bytes(chunk.data)) == [b"a", b"b"]
    assert (chunk.next_offset, chunk.start_offset, chunk.end_offset, chunk.stable_offset) == (2, 0, 2, 2)
    assert session.is_clean


def test_a_channel_that_the_broker_ends_raises_why(session: Session) -> None:
    with pytest.raises(UnknownQueue, match="none"):
        session.open_channel(m.OpenQueue("none"))
    assert session.is_clean


def test_publishing_and_fetching_large_batches_at_once_does_not_deadlock(session: Session) -> None:
    size = 3_000_000
    session.call(
        "topic.create", {"name": "orders", "partitions": 1, "config": {"max.message.bytes": "8000000"}}
    )
    channel = session.open_channel(m.OpenProducer(idempotent=False))
    for ref in range(8):
        channel.send(m.Publish(ref, "orders", 0, 1), batch_of(bytes(size)))
    confirmed = 0
    while confirmed < 8:
        head = channel.receive().head
        assert isinstance(head, m.Confirm)
        confirmed += len(head.confirmations)
    with session.fetch_ahead() as ahead:
        for offset in range(8):
            ahead.send(FetchWanted("orders", offset=offset, max_bytes=1))
        for ref in range(8):
            channel.send(m.Publish(ref, "orders", 0, 1), batch_of(bytes(size)))
        assert [ahead.receive().next_offset for _ in range(8)] == list(range(1, 9))
    channel.close()


# ── a broker that cannot be reached ───────────────────────────────────────────────────────────────


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def test_a_broker_that_is_not_there_is_one_clear_line_after_few_attempts() -> None:
    url = f"sparrow://ann:pencil-2B@127.0.0.1:{free_port()}"
    begun = time.monotonic()
    with pytest.raises(ConnectionLost, match="tried 4 times") as caught:
        connect(Target(url))
    assert time.monotonic() - begun < 5
    assert "\n" not in caught.value.text
    assert "pencil-2B" not in caught.value.text
    assert "sparrow serve" in caught.value.text


def test_a_peer_that_says_nothing_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"sparrow://127.0.0.1:{listening.getsockname()[1]}"
        begun = time.monotonic()
        with pytest.raises(ConnectionLost, match="did not answer in time"):
            connect(Target(url, connect_timeout_s=0.1, retries=1))
        assert time.monotonic() - begun < 3


def test_a_peer_that_speaks_something_else_is_not_tried_again(running: RunningBroker) -> None:
    with pytest.raises(SparrowError) as caught:
        connect(Target(running.http.replace("http://", "sparrow://"), retries=0))
    assert isinstance(caught.value, ConnectionLost | ProtocolError)

    def garbage(serving: Peer, connection: Connection, head: m.Head) -> bool:
        connection.queued.append(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        return True

    with peer(garbage) as serving:
        with pytest.raises(ProtocolError, match="HTTP"):
            connect(Target(serving.url))
        assert serving.connections == 1


def test_wrong_credentials_are_not_tried_again() -> None:
    with sparrow.testing.broker(users={"ann": "pencil-2B"}, super_users="ann") as broker:
        with pytest.raises(NotAuthenticated):
            connect(Target(broker.url, user="ann", password="wrong"))
        with connect(Target(broker.url, user="ann", password="pencil-2B")) as session:
            assert session.call("broker.describe")["version"]


def test_a_broker_that_has_no_room_now_is_tried_again() -> None:
    def full_at_first(serving: Peer, connection: Connection, head: m.Head) -> bool:
        if isinstance(head, m.Hello) and serving.connections < 3:
            connection.send(m.Error("OVERLOADED", "too many", retriable=True))
        elif isinstance(head, m.Hello):
            return welcome(connection)
        return True

    with peer(full_at_first) as serving:
        connect(Target(serving.url)).close()
        assert serving.connections == 3
    with peer(lambda serving, connection, head: False) as serving:
        with pytest.raises(ConnectionLost, match=r"sparrows://.*tried 2 times"):
            connect(Target(serving.url, retries=1))
        assert serving.connections == 2 + 1  # the last one asks which protocol is spoken there


def test_tls_and_credentials_are_as_for_other_clients(tmp_path_factory: pytest.TempPathFactory) -> None:
    files: Certificates = make_certificates(tmp_path_factory.mktemp("certificates"))
    options = {"tls_certificate": files.server.certificate, "tls_key": files.server.key}
    with sparrow.testing.broker(users={"ann": "pencil-2B"}, super_users="ann", **options) as broker:
        target = Target(broker.url, user="ann", password="pencil-2B", ca_file=files.ca)
        with connect(target) as session:
            session.call(
                "topic.create",
                {"name": "orders", "partitions": 1, "config": {"max.message.bytes": "8000000"}},
            )
            publish(session, "orders", *[b"%d" % n * 100_000 for n in range(10)] * 3)
            chunk = session.fetch(FetchWanted("orders", max_bytes=1))
            assert values_of(bytes(chunk.data)) == [b"%d" % n * 100_000 for n in range(10)] * 3
        with pytest.raises(NotAuthenticated, match="cannot be trusted"):
            connect(Target(broker.url, ca_file=files.other_ca))


# ── connections that are lost ─────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_link_outlives_a_restart_of_its_broker(broker: RunningBroker, session: Session) -> None:
    publish(session, "orders", b"a")
    broker.restart()
    assert session.fetch(FetchWanted("orders")).next_offset == 1
    publish(session, "orders", b"b")
    broker.stop()
    with pytest.raises(ConnectionLost, match="tried 4 times"):
        session.fetch(FetchWanted("orders"))
    broker.restart()
    assert session.fetch(FetchWanted("orders")).next_offset == 2


def answering(lost_at: set[int]) -> tuple[Script, list[int]]:
    """Answer fetches by their offset and calls by their name; end the connection in place of the
    responses with these numbers.
    """
    asked: list[int] = []

    def script(serving: Peer, connection: Connection, head: m.Head) -> bool:
        if isinstance(head, m.Hello):
            return welcome(connection)
        if isinstance(head, m.Fetch | m.Request):
            asked.append(head.ref)
            if len(asked) in lost_at:
                return False
        if isinstance(head, m.Fetch):
            connection.send(m.Fetched(head.ref, None, head.offset + 1), batches=b"%d" % head.offset)
        elif isinstance(head, m.Request):
            connection.send(m.Response(head.ref, None, head.verb))
        return True

    return script, asked


@pytest.mark.parametrize("lost_at", [{1}, {2, 5}, {3, 4, 5}])
def test_fetches_ahead_are_asked_again_in_order_when_the_connection_is_lost(lost_at: set[int]) -> None:
    script, _ = answering(lost_at)
    with peer(script) as serving, connect(Target(serving.url)) as session, session.fetch_ahead() as ahead:
        found = []
        for offset in range(20):
            ahead.send(FetchWanted("orders", offset=offset))
            if len(ahead) == 3:
                found.append(bytes(ahead.receive().data))
        while len(ahead):
            found.append(bytes(ahead.receive().data))
        assert found == [b"%d" % offset for offset in range(20)]
        assert serving.connections == 1 + len(lost_at)


def test_a_fetch_that_is_lost_again_and_again_is_given_up_with_its_place() -> None:
    script, asked = answering(set(range(100)))
    with peer(script) as serving, connect(Target(serving.url, retries=2)) as session:
        with pytest.raises(ConnectionLost, match="reading orders-4 at offset 17 failed 3 times"):
            session.fetch(FetchWanted("orders", partition=4, offset=17))
        # the loss of pipelined requests counts when their response is due
        assert len(asked) in {3, 4}


def test_only_idempotent_requests_are_repeated() -> None:
    script, asked = answering({1, 2, 4})
    with peer(script) as serving, connect(Target(serving.url)) as session:
        assert session.call("topic.describe") == "topic.describe"
        with pytest.raises(ConnectionLost):
            session.call("topic.create")
        assert len(asked) == 4
        assert session.call("topic.create") == "topic.create"
        asked[:] = [0]
        assert session.call("sink.commit", is_repeatable=True) == "sink.commit"


def busy(times: int) -> Script:
    """Refuse this many fetches for now."""
    refused = iter([True] * times)

    def script(serving: Peer, connection: Connection, head: m.Head) -> bool:
        if isinstance(head, m.Hello):
            return welcome(connection)
        if isinstance(head, m.Fetch):
            failure = m.Failure("OVERLOADED", "busy", retriable=True) if next(refused, False) else None
            connection.send(m.Fetched(head.ref, failure, head.offset + 1), batches=b"")
        return True

    return script


def test_temporary_failure_is_retried_and_later_requests_keep_their_order() -> None:
    with peer(busy(2)) as serving, connect(Target(serving.url)) as session, session.fetch_ahead() as ahead:
        for offset in range(6):
            ahead.send(FetchWanted("orders", offset=offset))
        assert [ahead.receive().next_offset for _ in range(6)] == [1, 2, 3, 4, 5, 6]


def test_a_failure_for_now_that_stays_is_given_up() -> None:
    with (
        peer(busy(100)) as serving,
        connect(Target(serving.url, retries=1)) as session,
        pytest.raises(Overloaded, match="failed 2 times: busy"),
    ):
        session.fetch(FetchWanted("orders"))


def test_an_answer_to_something_else_is_a_broken_peer() -> None:
    def confused(serving: Peer, connection: Connection, head: m.Head) -> bool:
        if isinstance(head, m.Hello):
            return welcome(connection)
        if isinstance(head, m.Fetch):
            connection.send(m.Fetched(head.ref + 1, None, head.offset + 1), batches=b"")
        return True

    with (
        peer(confused) as serving,
        connect(Target(serving.url)) as session,
        pytest.raises(ProtocolError, match="answered fetch 2 where 1 was due"),
    ):
        session.fetch(FetchWanted("orders"))


def test_a_broker_that_stays_silent_is_not_waited_for_twice() -> None:
    def mute(serving: Peer, connection: Connection, head: m.Head) -> bool:
        return welcome(connection) if isinstance(head, m.Hello) else True

    with peer(mute) as serving, connect(Target(serving.url, call_timeout_s=0.1)) as session:
        with pytest.raises(TimedOut, match=r"topic.describe within 0.1 s"):
            session.call("topic.describe")
        with pytest.raises(TimedOut, match=r"reading orders-0 at offset 0|sent nothing for 0.1 s"):
            session.fetch(FetchWanted("orders"))
        assert serving.connections == 2


def test_responses_after_a_goodbye_are_received_and_the_next_request_goes_elsewhere() -> None:
    def leaving(serving: Peer, connection: Connection, head: m.Head) -> bool:
        if isinstance(head, m.Hello):
            return welcome(connection)
        if isinstance(head, m.Fetch):
            if serving.connections == 1:
                connection.send(m.Goodbye("DRAINING"))
            connection.send(m.Fetched(head.ref, None, head.offset + 1), batches=b"")
        return True

    with peer(leaving) as serving, connect(Target(serving.url)) as session:
        assert session.fetch(FetchWanted("orders", offset=4)).next_offset == 5
        assert serving.connections == 1
        assert session.fetch(FetchWanted("orders", offset=5)).next_offset == 6
        assert serving.connections == 2


def test_a_connection_that_ended_while_nobody_looked_is_not_used() -> None:
    def short(serving: Peer, connection: Connection, head: m.Head) -> bool:
        if isinstance(head, m.Hello):
            return welcome(connection)
        if isinstance(head, m.Request):
            connection.send(m.Response(head.ref, None, serving.connections))
        return False

    with peer(short) as serving, connect(Target(serving.url, retries=0)) as session:
        for number in range(1, 5):
            assert session.call("topic.create") == number
            connection = session._connection
            assert connection is not None
            select.select([connection], [], [], SECONDS)  # until it has ended


def test_a_line_that_was_silent_for_long_is_tried_by_a_ping_first(
    broker: RunningBroker, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "SILENT_S", 0.0)
    connection = session.connection()
    assert session.connection() is connection
    connection._socket.shutdown(socket.SHUT_RDWR)
    assert session.connection() is not connection


def test_an_answer_cut_within_a_frame_is_asked_for_again() -> None:
    def cutting(serving: Peer, connection: Connection, head: m.Head) -> bool:
        if isinstance(head, m.Hello):
            return welcome(connection)
        if isinstance(head, m.Fetch):
            connection.send(m.Fetched(head.ref, None, 1), batches=bytes(500_000))
            if serving.connections < 3:
                data = b"".join(map(bytes, connection.data_to_send()))
                connection.queued.append(data[: 200_000 * serving.connections])
                return False
        return True

    with peer(cutting) as serving, connect(Target(serving.url)) as session:
        assert len(session.fetch(FetchWanted("orders")).data) == 500_000
        assert serving.connections == 3


# ── targets ───────────────────────────────────────────────────────────────────────────────────────


def test_a_target_can_be_pickled_and_shows_no_secret() -> None:
    target = Target("sparrow://ann:pencil-2B@broker.lan", token=None)
    assert pickle.loads(pickle.dumps(target)) == target
    assert repr(target) == "Target(sparrow://broker.lan:9094, user='ann', client_name='sparrow-spark')"
    secret = Target("sparrows://broker.lan", token="s3cret", password="hidden")
    assert "s3cret" not in repr(secret)
    assert "hidden" not in repr(secret)
    assert repr(Target("http://a:b@c/")) == "Target(…)"


def test_a_target_that_makes_no_sense_is_refused() -> None:
    for wrong in ({"connect_timeout_s": 0}, {"call_timeout_s": -1}, {"retries": -1}):
        with pytest.raises(InvalidArgument):
            Target(**wrong)
    with pytest.raises(InvalidArgument, match="http"):
        connect(Target("http://127.0.0.1"))
    with pytest.raises(InvalidArgument, match="token and a user"):
        connect(Target(token="t", user="u"))


# ── sessions that are kept ────────────────────────────────────────────────────────────────────────


def test_a_link_that_was_given_back_is_lent_again(running: RunningBroker) -> None:
    pool, target = Pool(), Target(running.url)
    with pool.borrowed(target) as first:
        connection = first.connection()
        with pool.borrowed(target) as second:
            assert second is not first
    with pool.borrowed(target) as third:
        assert third in {first, second}
    with pool.borrowed(Target(running.url, client_name="other")) as other:
        assert other not in {first, second}
    assert not connection.is_over
    pool.close()
    assert connection.is_over


def test_a_link_with_something_under_way_is_not_kept(running: RunningBroker) -> None:
    pool, target = Pool(), Target(running.url)
    with pool.borrowed(target) as session:
        session.call("topic.ensure", {"name": "orders"})
        connection = session.connection()
        session.fetch_ahead().send(FetchWanted("orders", wait_ms=5000))
    assert connection.is_over
    with pool.borrowed(target) as session:
        connection = session.connection()
        session.open_channel(m.OpenProducer())
    assert connection.is_over
    with suppress(ZeroDivisionError), pool.borrowed(target) as session:
        connection = session.connection()
        raise ZeroDivisionError
    assert not connection.is_over
    pool.close()


def test_few_links_are_kept(running: RunningBroker) -> None:
    pool, target = Pool(), Target(running.url)
    borrowed = [pool.borrowed(target) for _ in range(KEPT_PER_TARGET + 3)]
    sessions = [each.__enter__() for each in borrowed]
    for each in borrowed:
        each.__exit__(None, None, None)
    assert sum(session._connection is not None for session in sessions) == KEPT_PER_TARGET
    pool.close()


def test_a_forked_process_does_not_use_its_parents_sockets(running: RunningBroker) -> None:
    pool, target = Pool(), Target(running.url)
    with pool.borrowed(target) as session:
        mine = session.connection()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with pool.borrowed(target) as session:
                place = session.connection()._socket.getsockname()
                os.write(writing, repr((place, session.call("broker.describe")["version"])).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    told = os.read(reading, 1000).decode()
    os.close(reading)
    os.close(writing)
    assert told
    assert repr(mine._socket.getsockname()) not in told
    with pool.borrowed(target) as session:
        assert session.connection() is mine
        assert session.call("broker.describe")["version"]
    pool.close()


def in_child(use: Callable[[], object]) -> object:
    """Return the result of `use` in a forked process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            os.write(writing, json.dumps(use()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as told:
        found = json.loads(told.read())
    assert os.waitpid(child, 0)[1] == 0
    return found


def test_a_link_of_the_parent_raises_in_a_forked_process_and_goes_on_in_the_parent(
    running: RunningBroker,
) -> None:
    session = connect(Target(running.url))
    topic = "forked"
    session.call("topic.ensure", {"name": topic})
    channel = session.open_channel(m.OpenProducer())
    ahead = session.fetch_ahead()
    ahead.send(FetchWanted(topic))

    def use() -> dict[str, object]:
        told: dict[str, object] = {"parent": os.getppid(), "child": os.getpid()}
        uses: dict[str, Callable[[], object]] = {
            "call": lambda: session.call("broker.describe"),
            "connection": session.connection,
            "send ahead": lambda: ahead.send(FetchWanted(topic)),
            "receive ahead": ahead.receive,
            "channel.send": lambda: channel.send(m.Close()),
            "channel.receive": channel.receive,
            "channel.maybe_receive": channel.maybe_receive,
            "open_channel": lambda: session.open_channel(m.OpenProducer()),
            "max_batch_bytes": lambda: session.max_batch_bytes,
        }
        for name, each in uses.items():
            try:
                each()
            except UsedAfterFork as error:
                told[name] = error.text
        ahead.close()
        channel.close()
        session.close()
        session.drop()
        with connect(Target(running.url)) as mine:
            told["mine"] = bool(mine.call("broker.describe")["version"])
        return told

    told = in_child(use)
    assert isinstance(told, dict)
    assert told.pop("mine") is True
    words = f"made in process {told.pop('parent')} and cannot be used in process {told.pop('child')}"
    assert len(told) == 9
    assert all(words in text for text in told.values()), told
    assert ahead.receive().next_offset == 0
    assert session.call("broker.describe")["version"]
    channel.close()
    session.close()


def test_a_pool_whose_lock_another_thread_has_serves_a_forked_process(running: RunningBroker) -> None:
    pool, target = Pool(), Target(running.url)

    def use() -> object:
        with pool.borrowed(target) as session:
            return session.call("broker.describe")["version"]

    with pool._lock:  # as where a thread returns a session while another forks
        assert in_child(use)
    pool.close()


def test_links_are_given_back_when_the_process_ends(running: RunningBroker) -> None:
    program = (
        "import sys; from sparrow.spark.wire import Target, borrowed\n"
        "with borrowed(Target(sys.argv[1])) as session: session.call('topic.list')"
    )
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", program, running.url],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""


def test_links_of_several_threads_do_not_meet(running: RunningBroker) -> None:
    pool, target = Pool(), Target(running.url)
    failures: list[Exception] = []

    def work(name: str) -> None:
        try:
            for _ in range(20):
                with pool.borrowed(target) as session:
                    assert session.call("topic.ensure", {"name": name})["name"] == name
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(f"t{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    pool.close()


def test_a_link_that_was_interrupted_while_sending_is_not_kept(running: RunningBroker) -> None:
    pool, target = Pool(), Target(running.url)

    class Interrupted(BaseException):
        pass

    def interrupt(*_: object) -> int:
        raise Interrupted

    with suppress(Interrupted), pool.borrowed(target) as session:
        connection = session.connection()
        connection._send_some = interrupt  # type: ignore[method-assign]
        session.call("topic.list")
    assert connection.is_over
    with suppress(KeyboardInterrupt), pool.borrowed(target) as session:
        connection = session.connection()
        raise KeyboardInterrupt
    assert connection.is_over
    with pool.borrowed(target) as session:
        assert session.call("topic.list")
    pool.close()


def test_a_ping_of_the_broker_is_answered() -> None:
    nonces: list[int] = []

    def pinging(serving: Peer, connection: Connection, head: m.Head) -> bool:
        if isinstance(head, m.Hello):
            return welcome(connection)
        if isinstance(head, m.Request):
            connection.send(m.Ping(head.ref))
            connection.send(m.Response(head.ref))
        elif isinstance(head, m.Pong):
            nonces.append(head.nonce)
        return True

    with peer(pinging) as serving, connect(Target(serving.url)) as session:
        for _ in range(3):
            session.call("topic.list")
        session.connection().is_alive(5)
        assert nonces == [1, 2, 3]


def test_patient_session_waits_for_a_broker_beyond_the_attempts() -> None:
    with (
        sparrow.testing.broker(drain_timeout_ms="100ms") as running,
        connect(Target(running.url, retries=0)) as session,
    ):
        running.stop()
        with pytest.raises(ConnectionLost):
            session.call("topic.list", {})
        session.patience_s = 60.0
        back = threading.Timer(0.3, running.restart)
        back.start()
        try:
            assert session.call("topic.list", {})["topics"] == []
        finally:
            back.join()


def test_patience_ends() -> None:
    began = time.monotonic()
    with pytest.raises(ConnectionLost, match="tried"):
        connect(Target("sparrow://127.0.0.1:1", retries=0), patience_s=0.3)
    assert 0.3 <= time.monotonic() - began < 10
