"""The engine's state machine against a simple model: all operations, time that passes and jumps,
crashes in between.
"""

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)
from tests.queues.model import Message, Model
from tests.repetitions import repetitions

from sparrow.base.errors import LeaseExpired, NotLeased
from sparrow.base.queue_policy import QueuePolicy
from sparrow.broker.queues.persistence import pages
from sparrow.broker.queues.rules.delivery_info import DeliveryInfo
from sparrow.broker.queues.rules.record_state import STATE_MASK, STATES, count_of, level_of
from sparrow.broker.queues.rules.state import QueueState
from sparrow.broker.queues.rules.subscriber import DeadRecords
from sparrow.meta.store import Entry

SOURCES = 2
CONSUMERS = ("ann", "bob", "cyd")
WALL_MS = 1_700_000_000_000


class QueueMachine(RuleBasedStateMachine):
    """One queue of competing consumers over two sources."""

    @initialize(
        order=st.sampled_from(["none", "key", "parented"]),
        limit=st.sampled_from([0, 1, 2, 3]),
        backoff_ms=st.sampled_from([0, 500]),
        has_dead_letters=st.booleans(),
        prefetch=st.sampled_from([0, 3]),
    )
    def begin(self, order, limit, backoff_ms, has_dead_letters, prefetch) -> None:
        self.policy = QueuePolicy(
            order=order,
            delivery_limit=limit,
            backoff="exponential",
            backoff_ms=backoff_ms,
            lease_ms=1000,
            prefetch=prefetch,
            parent_wait_ms=3_600_000,
            parent_failed="release",
        )
        self.has_dead_letters = has_dead_letters
        self.now_ms, self.wall_ms = 1000, WALL_MS
        self.model = Model(self.policy)
        self.published: list[list[Message]] = [[] for _ in range(SOURCES)]
        self.log_starts = [0] * SOURCES
        self.scanned = [0] * SOURCES
        self.entries: dict[str, dict[str, bytes]] = {"page": {}, "failed": {}}
        self.starts = [0] * SOURCES
        self.delivered_after_ack = 0
        self.ids = 0
        self.grants = []
        """Everything that was granted since the last crash."""
        self.state = self.make()
        for _ in range(SOURCES):
            self.state.add_source(0, {"": 0})

    def make(self) -> QueueState:
        return QueueState("q", self.policy, has_dead_letters=self.has_dead_letters, jitter=lambda: 0.0)

    @property
    def subscriber(self):
        return self.state.subscribers[""]

    # ── what happens ──────────────────────────────────────────────────────────────────────────────

    @rule(
        source=st.integers(0, SOURCES - 1),
        records=st.lists(
            st.tuples(
                st.sampled_from([4, 4, 4, 0, 9]),
                st.integers(0, 3),
                st.sampled_from([0, 0, 0, 300, 2500]),
                st.sampled_from([0, 0, 0, 1500]),
                st.booleans(),
                st.lists(st.integers(1, 30), max_size=2),
            ),
            min_size=1,
            max_size=6,
        ),
    )
    def publish(self, source, records) -> None:
        for level, key, delay, ttl, has_id, parents in records:
            self.ids += has_id
            self.published[source].append(
                Message(
                    source,
                    len(self.published[source]),
                    level,
                    key if self.policy.order == "key" else 0,
                    self.wall_ms + delay if delay else 0,
                    self.wall_ms + ttl if ttl else 0,
                    self.ids if has_id else 0,
                    # Only earlier ids and later ones of others: a cycle would wait for ever, as it
                    # should.
                    tuple(
                        sorted(
                            {p for p in parents if p < self.ids} if self.policy.order == "parented" else ()
                        )
                    ),
                )
            )

    @rule(source=st.integers(0, SOURCES - 1), most=st.integers(1, 8))
    def scan(self, source, most) -> None:
        first = self.scanned[source]
        batch = self.published[source][first : first + most]
        if not batch:
            return
        self.tick()
        end = first + len(batch)
        plain = self.policy.order == "none" and all(
            (m.level, m.key, m.deliver_at_ms, m.expires_at_ms) == (4, 0, 0, 0) for m in batch
        )
        infos = (
            None
            if plain
            else [
                DeliveryInfo(
                    m.offset, self.wall_ms, m.key, m.deliver_at_ms, m.level, m.expires_at_ms, m.id, m.parents
                )
                for m in batch
            ]
        )
        self.state.found(source, first, end, infos, now_ms=self.now_ms, wall_ms=self.wall_ms)
        self.scanned[source] = end
        for message in batch:
            self.model.messages[message.position] = message
            if message.state == "unseen":
                self.model.find(message, self.now_ms, self.wall_ms)
        self.release_children()
        self.tick()

    @rule(consumer=st.sampled_from(CONSUMERS), limit=st.integers(1, 5))
    def lease(self, consumer, limit) -> None:
        self.tick()
        room = self.subscriber.room(consumer, 0)
        limit = max(0, min(limit, room))
        if self.policy.prefetch:
            assert room <= self.policy.prefetch - len(self.model.holding(consumer))
        grants = self.subscriber.grant(
            consumer, limit, now_ms=self.now_ms, wall_ms=self.wall_ms, lease_ms=1000
        )
        self.grants += grants
        got = [(g.source, offset) for g in grants for offset in range(g.first, g.end)]
        counts = {(g.source, offset): g.deliveries for g in grants for offset in range(g.first, g.end)}
        assert len(set(got)) == len(got)
        ready = self.model.ready()
        assert len(got) == min(limit, len(ready))
        levels = sorted((m.level for m in ready), reverse=True)[: len(got)]
        assert [self.model.messages[position].level for position in got] == levels
        for position in got:
            message = self.model.messages[position]
            assert message.state == "ready", (message, "was leased")
            earlier = [
                m
                for m in ready
                if m.source == message.source
                and m.level == message.level
                and m.offset < message.offset
                and m.state == "ready"
            ]
            assert not earlier, (message, "before", earlier)
            message.state, message.consumer = "leased", consumer
            message.count += 1
            message.due_ms = self.now_ms + 1000
            assert counts[position] == message.count

    def pick(self, data, consumer):
        held = self.model.holding(consumer)
        return data.draw(st.sampled_from(held)) if held else None

    def settle(self, consumer, message, act) -> None:
        runs = self.subscriber.leased_runs(consumer, message.source, message.offset, message.offset + 1)
        act(message.source, runs)
        self.state.settled()

    @rule(consumer=st.sampled_from(CONSUMERS), data=st.data())
    def ack(self, consumer, data) -> None:
        self.tick()
        message = self.pick(data, consumer)
        if message is not None:
            self.settle(consumer, message, self.subscriber.ack)
            self.model.over(message, "done", "acknowledged")
            self.release_children()

    @rule(consumer=st.sampled_from(CONSUMERS), data=st.data(), delay=st.sampled_from([-1, 0, 700]))
    def nack(self, consumer, data, delay) -> None:
        self.tick()
        message = self.pick(data, consumer)
        if message is not None:
            self.settle(consumer, message, lambda s, r: self.subscriber.nack(s, r, self.now_ms, delay, "no"))
            self.model.nack(message, self.now_ms, delay)
            self.after_dooms()

    @rule(consumer=st.sampled_from(CONSUMERS), data=st.data())
    def reject(self, consumer, data) -> None:
        self.tick()
        message = self.pick(data, consumer)
        if message is not None:
            self.settle(consumer, message, lambda s, r: self.subscriber.reject(s, r, "bad"))
            self.model.over(message, "moving", "dead")
            self.after_dooms()

    @rule(consumer=st.sampled_from(CONSUMERS), data=st.data(), by=st.sampled_from([400, 3000]))
    def extend(self, consumer, data, by) -> None:
        self.tick()
        message = self.pick(data, consumer)
        if message is not None:
            self.settle(consumer, message, lambda s, r: self.subscriber.extend(s, r, self.now_ms + by))
            message.due_ms = self.now_ms + by

    @rule(consumer=st.sampled_from(CONSUMERS), data=st.data())
    def give_back(self, consumer, data) -> None:
        self.tick()
        message = self.pick(data, consumer)
        if message is not None:
            self.settle(consumer, message, self.subscriber.release)
            message.count -= 1
            message.state = "ready"

    @rule(consumer=st.sampled_from(CONSUMERS), data=st.data())
    def settle_what_is_not_leased(self, consumer, data) -> None:
        self.tick()
        others = [m for m in self.model.messages.values() if m.state != "leased" or m.consumer != consumer]
        if not others:
            return
        message = data.draw(st.sampled_from(others))
        before = self.subscriber.value_at(message.source, message.offset)
        try:
            self.subscriber.leased_runs(consumer, message.source, message.offset, message.offset + 1)
        except NotLeased:
            assert self.subscriber.value_at(message.source, message.offset) == before
        else:
            raise AssertionError(f"{message} was not {consumer}'s to settle")

    @rule(data=st.data())
    def start_redrive(self, data) -> None:
        """Take messages from the consumers, to be sent elsewhere."""
        self.tick()
        free = [m for m in self.model.ready() if not m.expires_at_ms]
        if free and self.policy.order != "parented":
            message = data.draw(st.sampled_from(free))
            taken = self.subscriber.start_redrive(message.source, message.offset, message.offset + 1)
            assert taken == [(message.offset, message.offset + 1)]
            message.state, message.end = "moving", "redriven"

    @rule(data=st.data(), is_sent=st.booleans())
    def put_back_or_send(self, data, is_sent) -> None:
        self.tick()
        redriven = self.model.redriven()
        if not redriven:
            return
        message = data.draw(st.sampled_from(redriven))
        if is_sent:
            self.subscriber.finish_move(message.source, message.offset, message.offset + 1)
            self.model.over(message, "done", "sent")
        else:
            self.subscriber.cancel_redrive(message.source, [(message.offset, message.offset + 1)])
            message.state, message.end = "ready", ""

    @rule(data=st.data())
    def release_grants(self, data) -> None:
        """Release a grant that was not delivered: records that still have its lease are ready as
        before; later leases are left alone.
        """
        self.tick()
        if not self.grants:
            return
        grant = data.draw(st.sampled_from(self.grants))
        for offset in range(grant.first, grant.end):
            value = self.subscriber.value_at(grant.source, offset)
            if STATES[value & STATE_MASK] == "leased" and value >> 15 == grant.lease:
                message = self.model.messages[grant.source, offset]
                message.count -= 1
                message.state = "ready"
        self.subscriber.release_grants([grant])
        self.state.settled()

    @rule(consumer=st.sampled_from(CONSUMERS), data=st.data())
    def settle_an_earlier_delivery(self, consumer, data) -> None:
        self.tick()
        message = self.pick(data, consumer)
        if message is not None and message.count > 1:
            position = (message.source, message.offset, message.offset + 1)
            with pytest.raises(LeaseExpired):
                self.subscriber.leased_runs(consumer, *position, message.count - 1)

    @rule(source=st.integers(0, SOURCES - 1), data=st.data())
    def retention_takes_the_oldest(self, source, data) -> None:
        if (
            self.policy.order == "parented"
        ):  # children of records that the log does not keep any more are tested elsewhere
            return
        self.tick()
        log_start = data.draw(st.integers(0, len(self.published[source])))
        self.state.lost(source, log_start)
        self.log_starts[source] = max(self.log_starts[source], log_start)
        self.scanned[source] = max(self.scanned[source], log_start)
        for message in self.published[source][:log_start]:
            self.model.over(message, "done", message.end or "lost")
            self.model.messages[message.position] = message

    @rule(source=st.integers(0, SOURCES - 1), data=st.data())
    def administrator_moves_a_source(self, source, data) -> None:
        self.tick()
        own = [m for m in self.model.messages.values() if m.source == source]
        if self.policy.order == "parented" or any(m.state in {"leased", "moving"} for m in own):
            return
        start = data.draw(st.integers(0, self.scanned[source]))
        self.state.restart_source(source, start)
        self.scanned[source] = start
        for message in own:
            self.model.over(message, "done", message.end or "moved")
        for message in own:
            if message.offset >= start:
                message.state, message.end, message.count, message.consumer = "unseen", "", 0, ""
                del self.model.messages[message.position]

    @rule(backoff_ms=st.sampled_from([0, 500]), prefetch=st.sampled_from([0, 2, 3]))
    def policy_changes(self, backoff_ms, prefetch) -> None:
        self.policy = replace(self.policy, backoff_ms=backoff_ms, prefetch=prefetch)
        self.model.policy = self.policy
        self.state.reconfigure(self.policy, has_dead_letters=self.has_dead_letters)

    @rule()
    def dead_letters_are_written(self) -> None:
        for _, dead_records in self.state.take_dead_records():
            self.subscriber.finish_move(dead_records.source, dead_records.first, dead_records.end)
            for offset in range(dead_records.first, dead_records.end):
                message = self.model.messages[dead_records.source, offset]
                is_gone = offset < self.log_starts[dead_records.source]
                assert message.state == ("done" if is_gone else "moving")
                message.state = "done"

    @rule(by=st.sampled_from([100, 600, 1000, 2600]))
    def time_passes(self, by) -> None:
        self.now_ms += by
        self.wall_ms += by
        self.tick()

    @rule(by=st.sampled_from([-5000, -400, 400, 5000]))
    def wall_clock_jumps(self, by) -> None:
        self.wall_ms += by
        self.tick()

    @rule()
    def purge(self) -> None:
        self.tick()
        self.state.purge(list(self.scanned))
        for message in self.model.messages.values():
            if message.state in {"ready", "delayed", "blocked"}:
                self.model.over(message, "done", "purged")
        self.release_children()

    @rule(down_ms=st.sampled_from([0, 300, 2000]))
    def crash(self, down_ms) -> None:
        """Restart: exactly the persisted state is there again; the records are scanned again."""
        self.keep()
        self.now_ms += down_ms
        self.wall_ms += down_ms
        self.grants = []
        self.state = self.make()
        self.scanned = []
        for source in range(SOURCES):
            self.state.add_source(0, {"": self.starts[source]})
            kept = [
                pages.decode_page(
                    Entry("p", key, value, 1), int(key.split("/")[1]), self.now_ms, self.wall_ms
                )
                for key, value in sorted(
                    self.entries["page"].items(), key=lambda item: int(item[0].split("/")[1])
                )
                if int(key.split("/")[0]) == source
            ]
            self.subscriber.restore(source, kept)
            for key, value in self.entries["failed"].items():
                if int(key.split("/")[0]) == source:
                    for first, end in pages.decode_failed(Entry("f", key, value, 1), int(key.split("/")[1])):
                        self.state.failed[source].set(first, end, 1)
            self.scanned.append(self.state.scanned[source])
        self.model.queues.clear()
        for message in self.model.redriven():
            self.subscriber.cancel_redrive(message.source, [(message.offset, message.offset + 1)])
            message.state, message.end = "ready", ""
        self.subscriber.dead_records = [
            DeadRecords(source, offset, offset + 1)
            for _, (source, first, end) in self.state.take_dead_records()
            for offset in range(first, end)
            if STATES[self.subscriber.value_at(source, offset) & STATE_MASK] == "moving"
        ]
        seen = list(self.model.messages.values())
        self.model.messages.clear()
        for message in sorted(seen, key=lambda m: m.position):
            if message.state == "leased" or (message.state == "delayed" and message.count):
                # The wall clock may have jumped before the restart; that must not lengthen a lease.
                due_ms = self.subscriber.leases.by_number[
                    self.subscriber.value_at(*message.position) >> 15
                ].due_ms
                assert due_ms <= max(message.due_ms, self.now_ms + 3000)
                message.due_ms = due_ms
            if message.state == "moving" and not self.has_dead_letters:
                message.state = "done"
        # Scan up to the former position: records that were found stay found.
        for message in seen:
            if not message.is_over and message.state != "leased" and not message.count:
                message.state = "unseen"
        self.rescan(seen)

    def rescan(self, seen: list[Message]) -> None:
        order = sorted(seen, key=lambda m: m.position)
        for message in order:
            self.model.messages[message.position] = message
        for message in order:
            if message.offset < self.scanned[message.source]:
                continue
            infos = DeliveryInfo(
                message.offset,
                self.wall_ms,
                message.key,
                message.deliver_at_ms,
                message.level,
                message.expires_at_ms,
                message.id,
                message.parents,
            )
            self.state.found(
                message.source,
                message.offset,
                message.offset + 1,
                [infos],
                now_ms=self.now_ms,
                wall_ms=self.wall_ms,
            )
            self.scanned[message.source] = message.offset + 1
            if message.state == "unseen":
                self.model.find(message, self.now_ms, self.wall_ms)
            elif not message.is_over and message.key and self.policy.order == "key":
                self.model.queues.setdefault(message.key, []).append(message)
        self.release_children()
        self.tick()

    # ── upkeep ────────────────────────────────────────────────────────────────────────────────────

    def keep(self) -> None:
        """Persist as the journal does."""
        for source, page in self.subscriber.dirty:
            value = pages.encode_page(
                self.subscriber.maps[source].columns(page),
                self.subscriber.leases.by_number,
                lambda: (self.now_ms, self.wall_ms),
            )
            self.put("page", f"{source}/{page}", value)
        for source, page in self.state.dirty_failed:
            value = pages.encode_failed(self.state.failed[source].page_runs(page), page)
            self.put("failed", f"{source}/{page}", value)
        self.subscriber.dirty.clear()
        self.state.dirty_failed.clear()
        self.starts = list(self.subscriber.starts)

    def put(self, kind, key, value) -> None:
        if value is None:
            self.entries[kind].pop(key, None)
        else:
            self.entries[kind][key] = value

    def tick(self) -> None:
        self.state.tick(self.now_ms, self.wall_ms)
        self.tick_model()
        self.after_dooms()

    def tick_model(self) -> None:
        self.model.tick(self.now_ms, self.wall_ms)
        self.release_children()

    def after_dooms(self) -> None:
        if not self.has_dead_letters:
            for message in self.model.messages.values():
                if message.state == "moving" and message.end != "redriven":
                    message.state = "done"
        self.release_children()

    def release_children(self) -> None:
        if self.policy.order == "parented":
            for message in self.model.seen():
                if message.state == "blocked":
                    self.model.hold_back(message)

    # ── what must hold ────────────────────────────────────────────────────────────────────────────

    @invariant()
    def engine_and_model_agree(self) -> None:
        if not hasattr(self, "model"):
            return
        for message in self.model.messages.values():
            value = self.subscriber.value_at(message.source, message.offset)
            state = STATES[value & STATE_MASK]
            assert state == message.state, (message, state)
            if state not in {"done", "gap"}:
                assert count_of(value) == message.count, message
                assert level_of(value) == message.level, message
            if self.policy.delivery_limit:
                assert message.count <= self.policy.delivery_limit

    @invariant()
    def counts_are_right(self) -> None:
        if not hasattr(self, "model"):
            return
        for index, state in enumerate(STATES):
            if state in {"ready", "leased", "delayed", "blocked", "moving"}:
                assert self.subscriber.counts[index] == sum(
                    m.state == state for m in self.model.messages.values()
                ), state
        for consumer in CONSUMERS:
            assert self.subscriber.leases.leased_counts.get(consumer, 0) == len(self.model.holding(consumer))
        used_leases = {
            value >> 15
            for runs in self.subscriber.maps
            for page in runs.pages()
            for *_, value in runs.page_runs(page)
        }
        # Leases without records are gone. (A finished range has none.)
        assert set(self.subscriber.leases.by_number) == used_leases - {0}

    @invariant()
    def a_key_is_in_flight_once(self) -> None:
        if hasattr(self, "model") and self.policy.order == "key":
            for key in {m.key for m in self.model.messages.values() if m.key}:
                flying = [m for m in self.model.messages.values() if m.key == key and m.state == "leased"]
                assert len(flying) <= 1


TestQueueModel = QueueMachine.TestCase
TestQueueModel.settings = settings(max_examples=repetitions(120), stateful_step_count=40, deadline=None)
