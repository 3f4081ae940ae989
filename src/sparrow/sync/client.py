"""The client for threads: each method runs its async namesake on the background thread."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from sparrow.client.client import DEFAULT_URL
from sparrow.client.client import connect as connect_async
from sparrow.sync.admin import Admin
from sparrow.sync.background import Background
from sparrow.sync.channel import Channel
from sparrow.sync.producer import Producer
from sparrow.sync.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from sparrow.client.client import Client as AsyncClient
    from sparrow.client.client import Connecting
    from sparrow.client.delivery import RecordMetadata
    from sparrow.client.options import Acks, CommitMode, Isolation, Mode, StartAt
    from sparrow.client.subscription import OnAssigned, OnRevoked
    from sparrow.records.compression import Compression


class Client:
    """A connected client; made by `connect`. Any thread may use it."""

    def __init__(self, background: Background, client: AsyncClient) -> None:
        self._background = background
        self._client = client
        self._closing = threading.Lock()
        self._is_closed = False
        self.admin = Admin(background, client.admin)

    @property
    def address(self) -> str:
        """The broker's host and port."""
        return self._client.address

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now; while there is none, one is being sought."""
        return self._client.is_connected

    def publish(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]] | None = None,
        timestamp_ms: int | None = None,
        partition: int | None = None,
        acks: Acks = "all",
    ) -> RecordMetadata:
        """Publish one message, wait until it is kept, return where it went. Raises as the async `publish`."""
        return self._background.run(
            self._client.publish(
                topic,
                value,
                key=key,
                headers=headers,
                timestamp_ms=timestamp_ms,
                partition=partition,
                acks=acks,
            )
        )

    def producer(
        self,
        *,
        acks: Acks = "all",
        linger_ms: float = 5.0,
        batch_bytes: int = 128 << 10,
        compression: str | Compression = "none",
        idempotent: bool | None = None,
        max_pending_bytes: int = 32 << 20,
        delivery_timeout_s: float = 120.0,
    ) -> Producer:
        """A producer, for streams of messages; use it as `with`."""
        producer = self._client.producer(
            acks=acks,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            compression=compression,
            idempotent=idempotent,
            max_pending_bytes=max_pending_bytes,
            delivery_timeout_s=delivery_timeout_s,
        )
        return Producer(self._background, producer)

    def subscribe(
        self,
        *topics: str,
        start: StartAt = "end",
        group: str | None = None,
        commit: CommitMode = "manual",
        auto_commit_interval_s: float = 5.0,
        mode: Mode = "push",
        prefetch_bytes: int = 4 << 20,
        session_timeout_s: float = 45.0,
        rebalance_timeout_s: float = 60.0,
        isolation: Isolation = "read_uncommitted",
        on_assigned: OnAssigned | None = None,
        on_revoked: OnRevoked | None = None,
    ) -> Subscription:
        """A subscription; iterate over it, best within `with`. The callbacks run on the client's thread and must not block."""
        subscription = self._client.subscribe(
            *topics,
            start=start,
            group=group,
            commit=commit,
            auto_commit_interval_s=auto_commit_interval_s,
            mode=mode,
            prefetch_bytes=prefetch_bytes,
            session_timeout_s=session_timeout_s,
            rebalance_timeout_s=rebalance_timeout_s,
            isolation=isolation,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
        )
        return Subscription(self._background, subscription)

    def channel(self) -> Channel:
        """Queues in the style of msbq."""
        return Channel(self._background, self._background.run(self._client.channel()))

    def close(self) -> None:
        """Flush, say goodbye, end the thread. The second time nothing happens. Raises as the async `close`."""
        self._close(abandon=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close(abandon=error is not None)

    def _close(self, *, abandon: bool) -> None:
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
        try:
            self._background.run(self._client.abandon() if abandon else self._client.close())
        finally:
            self._background.stop()


def connect(
    url: str = DEFAULT_URL,
    *,
    client_name: str = "",
    token: str | None = None,
    user: str | None = None,
    password: str | None = None,
    ca_file: str | None = None,
    certificate_file: str | None = None,
    key_file: str | None = None,
    connect_timeout_s: float = 5.0,
    reconnect_timeout_s: float | None = None,
    call_timeout_s: float = 30.0,
    close_timeout_s: float = 10.0,
) -> Client:
    """Connect to a broker; use the client as `with`, or close it. Raises as the async `connect`."""
    connecting = connect_async(
        url,
        client_name=client_name,
        token=token,
        user=user,
        password=password,
        ca_file=ca_file,
        certificate_file=certificate_file,
        key_file=key_file,
        connect_timeout_s=connect_timeout_s,
        reconnect_timeout_s=reconnect_timeout_s,
        call_timeout_s=call_timeout_s,
        close_timeout_s=close_timeout_s,
    )
    background = Background()
    try:
        return Client(background, background.run(_connected(connecting)))
    except BaseException:
        background.stop()
        raise


async def _connected(connecting: Connecting) -> AsyncClient:
    return await connecting
