"""A driver of a classic group in place of its members: tickets are numbers, responses are kept by
ticket.
"""

from __future__ import annotations

import itertools
import struct
from typing import Any

from sparrow.broker.groups.classic.group import ClassicGroup, ClassicLimits, Effect, Respond, Store
from sparrow.broker.groups.classic.protocol import (
    JoinRequest,
    JoinResponse,
    Leaver,
    SyncRequest,
    SyncResponse,
)


def subscription(*topics: str) -> bytes:
    """The metadata of a consumer (version 0)."""
    names = b"".join(struct.pack(">h", len(t.encode())) + t.encode() for t in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def request(member_id: str = "", **changes: Any) -> JoinRequest:
    """Return a JoinGroup of an ordinary consumer."""
    values: dict[str, Any] = {
        "group": "g",
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": (("range", subscription("a")),),
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "client_id": "client",
        **changes,
    }
    return JoinRequest(**values)


class Driver:
    """A group, a clock and all responses so far. The group is stored at once whenever it asks for
    it, unless `is_slow`.
    """

    def __init__(self, **limits: int) -> None:
        self.group = ClassicGroup("g", ClassicLimits(**limits))
        self.now = 0.0
        self.responses: dict[int, Any] = {}
        self.stores = 0
        self.is_slow = False
        self.waiting: list[Effect] = []
        self._tickets = itertools.count()
        self._ids = itertools.count()

    def join(self, member_id: str = "", **changes: Any) -> int:
        ticket = next(self._tickets)
        self._do(self.group.join(request(member_id, **changes), ticket, self.now, str(next(self._ids))))
        return ticket

    def sync(self, member_id: str, generation: int, **changes: Any) -> int:
        ticket = next(self._tickets)
        self._do(self.group.sync(SyncRequest("g", member_id, generation, **changes), ticket, self.now))
        return ticket

    def leave(self, *leavers: str | Leaver) -> list[Any]:
        results, effects = self.group.leave(
            [each if isinstance(each, Leaver) else Leaver(each) for each in leavers], self.now
        )
        self._do(effects)
        return results

    def advance(self, seconds: float) -> None:
        """Let time pass, and every deadline on the way be met."""
        until = self.now + seconds
        while (at := self.group.next_deadline) is not None and self.now < at <= until:
            self.now = at
            self._do(self.group.expire(self.now))
        self.now = until
        self._do(self.group.expire(self.now))

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> None:
        self.group.heartbeat(member_id, generation, instance_id, self.now)

    def stored(self) -> None:
        """Make the pending writes durable."""
        waiting, self.waiting = self.waiting, []
        for effect in waiting:
            self._store(effect)

    def joined(self, ticket: int) -> JoinResponse:
        response = self.responses[ticket]
        assert isinstance(response, JoinResponse), response
        return response

    def assigned(self, ticket: int) -> bytes:
        response = self.responses[ticket]
        assert isinstance(response, SyncResponse), response
        return response.assignment

    def stable(self, *instances: str | None, **changes: Any) -> list[str]:
        """Make a stable group of this many members; return their ids, the leader's first."""
        tickets = [self.join(instance_id=instance, **changes) for instance in instances]
        self.advance(1)
        responses = [self.joined(ticket) for ticket in tickets]
        ids = [response.member_id for response in responses]
        self.all_sync(ids, responses[0].generation)
        return ids

    def all_sync(self, ids: list[str], generation: int) -> None:
        """Sync all members; each is assigned its own id."""
        leader = self.group.leader
        for member_id in ids:
            given = {m: m.encode() for m in self.group.members} if member_id == leader else {}
            self.sync(member_id, generation, assignments=given)

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Respond):
                assert effect.ticket not in self.responses, "a request was answered twice"
                self.responses[effect.ticket] = effect.result  # type: ignore[index]
            elif self.is_slow:
                self.waiting.append(effect)
            else:
                self._store(effect)

    def _store(self, effect: Effect) -> None:
        self.stores += 1
        if isinstance(effect, Store):
            self._do(list(effect.responses))
        elif not isinstance(effect, Respond):
            self._do(self.group.assignment_stored(effect.generation, effect.assignments, self.now))
