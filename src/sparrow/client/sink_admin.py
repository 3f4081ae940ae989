"""Administration of sinks: the part of `client.admin` for what data pipelines write their batches into."""

from __future__ import annotations

from sparrow.client.results import SinkDescription
from sparrow.client.verbs import Verbs, result_as


class SinkAdmin(Verbs):
    """The verbs of sinks that are for people. Those that write batches are `sparrow.spark.wire.staging`'s."""

    async def list_sinks(self) -> list[SinkDescription]:
        """The sinks that one may describe, by id, without their stages."""
        answer = await self._read("sink.list", {})
        return result_as(list[SinkDescription], answer["sinks"])

    async def describe_sink(self, sink: str) -> SinkDescription:
        """A sink with its open stages. Raises UnknownSink."""
        return result_as(SinkDescription, await self._read("sink.describe", {"sink": sink}))

    async def delete_sink(self, sink: str) -> int:
        """Forget a sink, with the batches that it committed, and drop its open stages; returns how many those were. Raises UnknownSink."""
        answer = await self._change("sink.delete", {"sink": sink})
        return result_as(int, answer["aborted"])
