"""Members of a share group (KIP-932), by raw requests, so that each acknowledgement has a response
of its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress

from kio.schema.errors import ErrorCode

from sparrow.testing.running_broker import RunningBroker
from tests.crash.histories import Found, Kind
from tests.crash.histories.queues import ACK, leased_twice, redelivered
from tests.crash.loads.native import NativeTopic
from tests.crash.loads.patience import AGAIN_S, until_empty
from tests.kafka_frontend.raw import RawClient
from tests.share_fetch.calls import ACCEPT, Member, Partition, acquired, configure, errors

_MEMBERS = 2
_LOCK_S = 2.0
_AT_ONCE = 20


class ShareGroup(NativeTopic):
    """A share group: acknowledged records come to no member again, and all are acknowledged in the
    end. The number of a record is its offset.
    """

    name = "shared"
    partitions = 1

    async def prepare(self, broker: RunningBroker) -> None:
        await super().prepare(broker)
        await asyncio.to_thread(self._configure, broker)

    def _configure(self, broker: RunningBroker) -> None:
        lock_ms = str(round(_LOCK_S * 1000))
        configs = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": lock_ms}
        with RawClient(broker.kafka) as raw:
            configure(raw, self.name, configs | {"share.delivery.count.limit": "25"})

    async def run(self, broker: RunningBroker, stop: asyncio.Event) -> None:
        over = threading.Event()
        members = [
            asyncio.create_task(asyncio.to_thread(self._member, broker.kafka, f"r{number}", over.is_set))
            for number in range(_MEMBERS)
        ]
        try:
            await super().run(broker, stop)
        finally:
            over.set()
            await asyncio.gather(*members)

    async def until_done(self, broker: RunningBroker) -> None:
        await until_empty(broker, self.name)

    def _member(self, servers: str, by: str, is_over: Callable[[], bool]) -> None:
        """Return a member that joins again, under its old id, whenever the broker was down."""
        member_id = str(uuid.uuid4())
        while not is_over():
            time.sleep(AGAIN_S)
            with suppress(OSError, AssertionError):
                member = Member(servers, self.name, member_id)
                try:
                    self._work(member, by, is_over)
                finally:
                    member.die()

    def _work(self, member: Member, by: str, is_over: Callable[[], bool]) -> None:
        member.raw.socket.settimeout(10)
        member.join(self.name)
        (zero,) = member.assigned
        wanted: Iterable[Partition] = [zero]
        while not is_over():
            asked_s = time.monotonic()
            answer = member.fetch(wanted, wait_ms=100, max_records=_AT_ONCE)
            assert answer.error_code is ErrorCode.none
            wanted = ()
            for first, last, count in acquired(answer).get(0, []):
                for offset in range(first, last + 1):
                    self.history.note(Kind.HANDED_OUT, offset, asked_s=asked_s, count=count)
                self._accept(member, zero, first, last)

    def _accept(self, member: Member, zero: Partition, first: int, last: int) -> None:
        for offset in range(first, last + 1):
            self.history.note(Kind.SETTLING, offset, what=ACK)
        answer = member.acknowledge({zero: [(first, last, [ACCEPT])]})
        assert errors(answer) == {0: ErrorCode.none}
        for offset in range(first, last + 1):
            self.history.note(Kind.SETTLED, offset, what=ACK)
            self.history.note(Kind.READ, offset)

    def misread(self, found: list[Found]) -> list[str]:
        said = self.history.numbers(Kind.SETTLING)
        breaches = [f"{each.offset} was never accepted" for each in found if each.offset not in said]
        return breaches + redelivered(self.history) + leased_twice(self.history, _LOCK_S)
