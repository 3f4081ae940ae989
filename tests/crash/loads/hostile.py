"""A user who may read and write a topic, and tries to write as the other producers of it.

He takes the ids, epochs and sequences that he reads in the log, and the ids that a counter would
allocate next, and sends batches under them: with the next sequence, with later ones, and with a
newer epoch; by raw requests of Kafka's protocol and of the native one.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from contextlib import suppress
from typing import Any

from kio.schema.errors import ErrorCode

from sparrow.protocol.native import messages as m
from sparrow.records.batch import HEADER_BYTES, parse_header
from sparrow.records.builder import build_batch
from tests.kafka_frontend.raw import RawClient, request
from tests.kafka_frontend.requests import fetch, produce
from tests.native_frontend.raw import RawClient as NativeClient

VALUE = b"hostile"
FUTURE = range(300)
"""Producer ids that a counter starting at 0 would allocate, as earlier versions did."""
_AT_ONCE = 8
_LATELY = 6
"""Number of ids that are taken from the log at a time: the newest."""

Producer = tuple[int, int, int]
"""Id, epoch and next sequence."""


class Hostile:
    """A hostile client; `is_over` stops it. `outcomes` counts the broker's responses; `taken` has
    the batches that it accepted.
    """

    def __init__(self, topic: str, user: str, token: str) -> None:
        self.is_over = False
        self.outcomes: Counter[str] = Counter()
        self.taken: list[int] = []
        """Producer ids."""
        self.failure: Exception | None = None
        self.seen: set[int] = set()
        """Ids that were read in the log."""
        self._topic = topic
        self._user = user
        self._token = token
        self._offset = 0

    # ── Kafka's protocol, in a thread ─────────────────────────────────────────────────────────────

    def work(self, bootstrap: str) -> None:
        """Attack until stopped; the broker may restart meanwhile. `failure` is the error that ended
        it early.
        """
        try:
            self._attack(bootstrap)
        except Exception as error:
            self.failure = error

    def _attack(self, bootstrap: str) -> None:
        while not self.is_over:
            with suppress(OSError), RawClient(bootstrap) as raw:
                self._log_in(raw)
                self.send(raw, [(each, 0, 0) for each in FUTURE])
                while not self.is_over:
                    known = self._read(raw)
                    self.send(raw, _variants(known))

    def _log_in(self, raw: RawClient) -> None:
        raw.call(request(17, 1, mechanism="PLAIN"))
        credentials = f"\0{self._user}\0{self._token}".encode()
        if raw.call(request(36, 2, auth_bytes=credentials)).error_code is not ErrorCode.none:
            raise ConnectionError("not let in")

    def _read(self, raw: RawClient) -> list[Producer]:
        """Return the producers that wrote lately."""
        found: dict[tuple[int, int], int] = {}
        answer = raw.call(fetch(11, self._topic, [{"partition": 0, "fetch_offset": self._offset}]))
        for topic in answer.responses:
            for each in topic.partitions:
                for header in _headers(each.records or b""):
                    self._offset = header.next_offset
                    if header.producer_id >= 0 and header.producer_id not in self.taken:
                        self.seen.add(header.producer_id)
                        then = header.last_sequence + 1 if header.base_sequence >= 0 else 0
                        found[header.producer_id, header.producer_epoch] = then
        return [(*who, then) for who, then in found.items()][-_LATELY:]

    def send(self, raw: RawClient, producers: list[Producer]) -> None:
        """Publish a batch as each producer."""
        for start in range(0, len(producers), _AT_ONCE):
            chunk = producers[start : start + _AT_ONCE]
            for each in chunk:
                raw.send(produce(9, self._topic, [(0, _batch(each))]))
            for each in chunk:
                answer: Any = raw.receive(0, 9)
                code = answer.responses[0].partition_responses[0].error_code
                self._note(each, code.name)

    def _note(self, producer: Producer, outcome: str) -> None:
        self.outcomes[outcome] += 1
        if outcome == "none":
            self.taken.append(producer[0])

    # ── the native protocol ───────────────────────────────────────────────────────────────────────

    async def attack_natively(self, host: str, port: int, producers: list[Producer]) -> list[str]:
        """Open a channel as each producer, then publish as each. Return the codes of refusals, ""
        for accepted batches.
        """
        client = NativeClient(*await asyncio.open_connection(host, port))
        await client.hello(credentials={"token": self._token})
        codes: list[str] = []
        channels = itertools.count(1)
        for producer_id, epoch, _ in producers:
            client.send(m.OpenProducer(True, producer_id, epoch), next(channels))
            head = (await client.receive()).head
            codes.append(head.code if isinstance(head, m.Error) else "")
        channel = next(channels)
        await client.open_producer(channel, idempotent=True)
        for ref, each in enumerate(producers):
            client.send(m.Publish(ref, self._topic, 0, -1), channel, _batch(each))
            (confirmation,) = (await client.expect(m.Confirm, channel)).confirmations
            codes.append("" if confirmation.failure is None else confirmation.failure.code)
        client.close()
        return codes


def _headers(data: bytes) -> list[Any]:
    """Yield the headers of whole batches."""
    found, position = [], 0
    while position + HEADER_BYTES <= len(data):
        header = parse_header(data, position)
        position += header.size_bytes
        if position > len(data):
            break
        found.append(header)
    return found


def _variants(known: list[Producer]) -> list[Producer]:
    """Return producers that may publish between a producer and its next batches."""
    return [
        each
        for producer_id, epoch, then in known
        for each in (
            *((producer_id, epoch, then + ahead) for ahead in range(3)),
            (producer_id, epoch + 1, 0),
            (producer_id + 1, 0, 0),
        )
    ]


def _batch(producer: Producer) -> bytes:
    producer_id, epoch, sequence = producer
    return build_batch([VALUE], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
