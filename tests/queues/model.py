"""A queue as simple as it can be: a dictionary of records, with every rule as a loop over all of
them.

The engine has ranges, timers and indexes instead; the state machine in `test_queue_model.py`
compares both. The model has one subscriber (a queue of competing consumers).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sparrow.base.queue_policy import QueuePolicy


@dataclass
class Message:
    """A record and its state."""

    source: int
    offset: int
    level: int = 4
    key: int = 0
    deliver_at_ms: int = 0
    expires_at_ms: int = 0
    id: int = 0
    parents: tuple[int, ...] = ()
    state: str = "unseen"
    """unseen, ready, leased, delayed, blocked, moving, done"""
    end: str = ""
    """The end of the record: acknowledged, dead, expired, purged."""
    count: int = 0
    consumer: str = ""
    due_ms: int = 0
    """Monotonic time: end of the lease, or of the delay after its return."""
    wait_until_ms: int = 0

    @property
    def position(self) -> tuple[int, int]:
        return (self.source, self.offset)

    @property
    def is_over(self) -> bool:
        return self.state in {"moving", "done"}


@dataclass
class Model:
    """All records of all sources."""

    policy: QueuePolicy
    messages: dict[tuple[int, int], Message] = field(default_factory=dict)
    queues: dict[int, list[Message]] = field(default_factory=dict)
    """By key: unfinished messages in the order in which they were found."""

    def seen(self) -> list[Message]:
        return [m for m in self.messages.values() if m.state != "unseen"]

    def holding(self, consumer: str) -> list[Message]:
        return [m for m in self.messages.values() if m.state == "leased" and m.consumer == consumer]

    # ── what is found ─────────────────────────────────────────────────────────────────────────────

    def find(self, message: Message, now_ms: int, wall_ms: int) -> None:
        if message.deliver_at_ms > wall_ms:
            message.state = "delayed"
            return
        self.gate(message)
        if message.state == "blocked" and message.parents:
            message.wait_until_ms = now_ms + self.policy.parent_wait_ms

    def gate(self, message: Message) -> None:
        if message.key and self.policy.order == "key":
            self.queues.setdefault(message.key, []).append(message)
        message.state = "ready"
        self.hold_back(message)

    def hold_back(self, message: Message) -> None:
        """Make a message ready, or blocked by its key or parents."""
        blocked = False
        if message.key and self.policy.order == "key":
            blocked = self.queues[message.key][0] is not message
        if self.policy.order == "parented" and message.parents:
            blocked = any(not self.is_handled(parent) for parent in message.parents)
        message.state = "blocked" if blocked else "ready"

    def is_handled(self, message_id: int) -> bool:
        """Return True if children of this id may be delivered."""
        bearer = self.bearer(message_id)
        return bearer is not None and bearer.is_over

    def bearer(self, message_id: int) -> Message | None:
        """Return the record that has an id: the first that was found."""
        found = [m for m in self.seen() if m.id == message_id]
        return found[0] if found else None

    # ── what ends ─────────────────────────────────────────────────────────────────────────────────

    def over(self, message: Message, state: str, end: str) -> None:
        message.state, message.end = state, end
        queue = self.queues.get(message.key, [])
        if message in queue:
            was_head = queue[0] is message
            queue.remove(message)
            if was_head and queue:
                self.hold_back(queue[0])

    # ── what may be leased ────────────────────────────────────────────────────────────────────────

    def ready(self) -> list[Message]:
        return [m for m in self.messages.values() if m.state == "ready"]

    def redriven(self) -> list[Message]:
        """Return messages that were taken from the consumers, to be sent elsewhere."""
        return [m for m in self.messages.values() if m.state == "moving" and m.end == "redriven"]

    def nack(self, message: Message, now_ms: int, delay_ms: int) -> None:
        limit = self.policy.delivery_limit
        if limit and message.count >= limit:
            self.over(message, "moving", "dead")
            return
        if delay_ms < 0:
            delay_ms = self.policy.backoff_after(message.count, 0.0)
        message.due_ms = now_ms + delay_ms
        message.state = "delayed" if delay_ms else "ready"

    def tick(self, now_ms: int, wall_ms: int) -> None:
        for message in list(self.messages.values()):
            if message.state == "leased" and message.due_ms <= now_ms:
                self.nack(message, now_ms, -1)
            if message.state == "delayed" and message.count and message.due_ms <= now_ms:
                message.state = "ready"
            elif message.state == "delayed" and not message.count and message.deliver_at_ms <= wall_ms:
                self.gate(message)
        for message in self.messages.values():
            waits = message.state in {"ready", "delayed", "blocked"}
            if message.expires_at_ms and message.expires_at_ms <= wall_ms and waits:
                self.over(message, "done", "expired")
