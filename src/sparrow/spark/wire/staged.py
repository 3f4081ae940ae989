"""Publishing of a task into a stage of a sink, and commit and abort of the stages by the driver.

All writers of a stage share one channel of the session. Batches are sent as far as the broker's
window allows, and kept until they are confirmed to be on stable storage. If the connection is lost,
or the broker is restarted, the channel is opened again and what is not confirmed is sent once more:
batches have sequences, so the broker knows those it has.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrow.base.errors import ConnectionLost, SparrowError, from_code
from sparrow.protocol.native.messages import Confirm, OpenProducer, ProducerOpened, Publish

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.protocol.native.messages import Confirmation
    from sparrow.spark.wire.session import Channel, Session

DEFAULT_TIMEOUT_MS: Final = 0
"""Default of the broker: 15 minutes, unless it allows less."""
CHARGE_PER_BATCH_BYTES: Final = 512
"""Bytes that the broker's window counts for each batch besides its size."""
_DUPLICATE: Final = "DUPLICATE_SEQUENCE"


@dataclass(eq=False)
class SinkStage:
    """An open stage. Batches must be transactional, of this producer, with sequences from 0 on in
    each partition.
    """

    id: str
    producer_id: int
    producer_epoch: int
    _publishing: _Publishing | None = field(default=None, repr=False)


def stage(
    session: Session,
    *,
    sink: str,
    query: str,
    run: str,
    batch: int,
    task: int = 0,
    attempt: int = 0,
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
    take_over: bool = False,
) -> SinkStage | None:
    """Open a stage for what a task writes of a batch. None: the batch was committed before, and
    nothing must be written.

    Raises:
        SinkFenced: a later run of the query has taken over.
        SinkTaken: the sink belongs to another query. InvalidArgument, InvalidTransactionTimeout,
            NotAuthorized, Overloaded, DiskFull, ConnectionLost
    """
    found = session.call(
        "sink.stage",
        {
            "sink": sink,
            "query": query,
            "run": run,
            "batch": batch,
            "task": task,
            "attempt": attempt,
            "timeout_ms": timeout_ms,
            "take_over": take_over,
        },
        # a stage whose response was lost is dropped with those of the losing attempts
        is_repeatable=True,
    )
    if found["is_committed"]:
        return None
    return SinkStage(found["stage"], found["producer_id"], found["producer_epoch"])


def commit(session: Session, *, sink: str, query: str, run: str, batch: int, stages: Sequence[str]) -> bool:
    """Publish a batch: the content of these stages, and nothing else. True: it was committed
    before.

    Raises:
        StageExpired: nothing was committed; the batch must be written again. SinkFenced, SinkTaken,
            NotAuthorized, DiskFull, ConnectionLost
    """
    found = session.call(
        "sink.commit",
        {"sink": sink, "query": query, "run": run, "batch": batch, "stages": list(stages)},
        is_repeatable=True,
    )
    return bool(found["was_committed"])


def abort(
    session: Session, *, sink: str, query: str, run: str, batch: int, stages: Sequence[str] = ()
) -> bool:
    """Drop everything that was staged of a batch, or only the content of these stages. True: it was
    committed before, and nothing was dropped.
    """
    found = session.call(
        "sink.abort",
        {"sink": sink, "query": query, "run": run, "batch": batch, "stages": list(stages)},
        is_repeatable=True,
    )
    return bool(found["is_committed"])


def renew(session: Session, *, sink: str, run: str, batch: int) -> None:
    """Extend the life of a batch that is still being written, so that its stages are kept.

    Raises:
        SinkFenced: a later run of the query has taken over.
    """
    session.call("sink.renew", {"sink": sink, "run": run, "batch": batch}, is_repeatable=True)


class StagedWriter:
    """Publishes into a stage, to one topic, which is created if the broker creates missing ones.
    One thread at a time, as its session.
    """

    def __init__(self, session: Session, stage: SinkStage, topic: str) -> None:
        """Raises StageExpired, UnknownTopic, NotAuthorized, ConnectionLost."""
        self.topic = topic
        self.partitions: int = session.call("topic.ensure", {"name": topic})["partition_count"]
        if stage._publishing is None:  # noqa: SLF001 - the writers of a stage share it
            stage._publishing = _Publishing(session, stage)  # noqa: SLF001
        self._publishing = stage._publishing  # noqa: SLF001
        self._publishing.writers += 1
        self._is_closed = False

    def publish(self, partition: int, data: bytes) -> None:
        """Send a batch; waits while the broker's window is full.

        Raises:
            StageExpired: the batch must be written again.
            SparrowError: the broker's error for this batch, or an earlier one.
        """
        self._publishing.publish(_Sent(self.topic, partition, data))

    def finish(self) -> None:
        """Wait until everything published into the stage is on stable storage. Raises as
        `publish`.
        """
        self._publishing.settle()

    def close(self) -> None:
        """End the publishing. Raises nothing; what was not finished is not confirmed."""
        if not self._is_closed:
            self._is_closed = True
            self._publishing.leave()


class _Sent(NamedTuple):
    topic: str
    partition: int
    data: bytes

    @property
    def charge(self) -> int:
        return len(self.data) + CHARGE_PER_BATCH_BYTES


class _Publishing:
    """The channel of a stage, and its unconfirmed batches."""

    def __init__(self, session: Session, stage: SinkStage) -> None:
        self.writers = 0
        self._session = session
        self._stage = stage
        self._unconfirmed: dict[int, _Sent] = {}
        self._unconfirmed_bytes = 0
        self._last_ref = -1
        self._last_resent = -1
        """Refs up to this one were sent more than once."""
        self._losses = 0
        """Connections lost since something was confirmed."""
        self._is_settled = False
        self._window_bytes = 0
        self._channel = self._open()

    def publish(self, sent: _Sent) -> None:
        while self._unconfirmed and self._unconfirmed_bytes + sent.charge > self._window_bytes:
            self._await()
        self._take_arrived()
        self._is_settled = False
        self._last_ref += 1
        self._unconfirmed[self._last_ref] = sent
        self._unconfirmed_bytes += sent.charge
        try:
            self._send(self._last_ref, sent)
        except ConnectionLost as error:
            self._resume(error)
        except BaseException:  # the broker does not support it
            self._forget(self._last_ref)
            raise

    def settle(self) -> None:
        while self._unconfirmed:
            self._await()
        self._is_settled = True

    def leave(self) -> None:
        self.writers -= 1
        if not self.writers:
            self._stage._publishing = None  # noqa: SLF001
            with suppress(SparrowError):
                self._close()

    def _close(self) -> None:
        """Close the channel; a stage that the broker does not know to be complete is kept for a
        short time only.
        """
        try:
            self._channel.close()
        except ConnectionLost:
            if self._is_settled:
                self._session.repeat(lambda: self._open().close(), "completing a stage")

    # ── the channel ───────────────────────────────────────────────────────────────────────────────

    def _open(self) -> Channel:
        channel = self._session.open_channel(OpenProducer(stage=self._stage.id))
        opened = channel.opened
        assert isinstance(opened, ProducerOpened)
        self._window_bytes = opened.window_bytes
        return channel

    def _send(self, ref: int, sent: _Sent) -> None:
        self._channel.send(Publish(ref, sent.topic, sent.partition), sent.data)

    def _resume(self, error: ConnectionLost) -> None:
        """Open the channel on a new connection, and send again what is not confirmed."""
        self._losses += 1
        if self._losses > self._session.target.retries:
            raise error
        self._last_resent = self._last_ref

        def again() -> None:
            self._channel = self._open()
            for ref, sent in self._unconfirmed.items():
                self._send(ref, sent)

        self._session.repeat(again, "publishing into a stage")

    # ── confirmations ─────────────────────────────────────────────────────────────────────────────

    def _take_arrived(self) -> None:
        """Take the confirmations that have arrived, and leave a connection whose broker says
        goodbye.
        """
        try:
            while (received := self._channel.maybe_receive()) is not None:
                self._take(received.head)
            if not self._channel.connection.is_usable:
                self._leave_line()
        except ConnectionLost as error:
            self._resume(error)

    def _leave_line(self) -> None:
        """Wait for the outstanding confirmations on the connection, before the next one is
        opened.
        """
        while self._unconfirmed:
            self._take(self._channel.receive().head)
        self._session.repeat(self._reopen, "publishing into a stage")

    def _reopen(self) -> None:
        self._channel = self._open()

    def _await(self) -> None:
        try:
            self._take(self._channel.receive().head)
        except ConnectionLost as error:
            self._resume(error)

    def _take(self, head: object) -> None:
        if not isinstance(head, Confirm):
            return
        self._losses = 0
        for each in head.confirmations:
            self._forget(each.ref)
            self._check(each)

    def _check(self, confirmation: Confirmation) -> None:
        failure = confirmation.failure
        if failure is None:
            return
        if failure.code == _DUPLICATE and confirmation.ref <= self._last_resent:
            # so many were sent again that the broker forgot its response; a later one of the
            # partition shows that it is durable
            return
        raise from_code(failure.code, failure.text)

    def _forget(self, ref: int) -> None:
        sent = self._unconfirmed.pop(ref, None)
        if sent is not None:
            self._unconfirmed_bytes -= sent.charge
