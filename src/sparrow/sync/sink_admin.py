"""Administration of sinks for threads. See `sparrow.client.sink_admin` for what each method does and raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparrow.client.admin import Admin as AsyncAdmin
    from sparrow.client.results import SinkDescription
    from sparrow.sync.background import Background


class SinkAdmin:
    """The part of `client.admin` for sinks."""

    _background: Background
    _admin: AsyncAdmin

    def list_sinks(self) -> list[SinkDescription]:
        """The sinks that one may describe, by id, without their stages."""
        return self._background.run(self._admin.list_sinks())

    def describe_sink(self, sink: str) -> SinkDescription:
        """A sink with its open stages."""
        return self._background.run(self._admin.describe_sink(sink))

    def delete_sink(self, sink: str) -> int:
        """Forget a sink and drop its open stages; returns how many those were."""
        return self._background.run(self._admin.delete_sink(sink))
