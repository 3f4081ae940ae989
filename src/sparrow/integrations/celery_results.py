"""A result backend for Celery: results are records of a topic.

    import sparrow.integrations.kombu
    app = Celery(broker="sparrow://127.0.0.1:9094", backend="sparrow://127.0.0.1:9094")

Importing the transport makes the backend known, too. Results are kept for `result_expires` in the
topic `celery-results`. `result_backend_transport_options` may have `topic`, and `connect` (options
of `sparrow.connect`, such as a token).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from celery.backends.base import KeyValueStoreBackend
from kombu.utils.url import url_to_parts

from sparrow.integrations.kombu import KombuSession, session_options
from sparrow.integrations.result_topic import ResultTopic

if TYPE_CHECKING:
    from collections.abc import Iterable

_TOPIC: Final = "celery-results"
_DAY_S: Final = 86_400


class CeleryResultBackend(KeyValueStoreBackend):
    """Results of Celery's tasks, groups and chords. Any thread, and after a fork."""

    persistent = True
    supports_autoexpire = True
    supports_native_join = True

    def __init__(self, app: Any, url: str | None = None, **options: Any) -> None:
        super().__init__(app, url=url, **options)
        self.url = url
        self._session: KombuSession | None = None
        self._results: ResultTopic | None = None

    def _topic(self) -> tuple[KombuSession, ResultTopic]:
        """Return the connection of this process and its results; connect at the first use."""
        if self._session is None or self._session.is_forked or self._results is None:
            given = dict(self.app.conf.result_backend_transport_options or {})
            parts = url_to_parts(self.url or "sparrow://")
            address, options = session_options(
                parts.hostname, parts.port, parts.username, parts.password, given
            )
            self._session = KombuSession(address, options)
            keep_ms = round(float(self.expires or 7 * _DAY_S) * 1000)
            self._results = ResultTopic(self._session.client, given.get("topic", _TOPIC), keep_ms=keep_ms)
        return self._session, self._results

    def get(self, key: str | bytes) -> bytes | None:
        """Return a stored value, or None."""
        session, results = self._topic()
        found: bytes | None = session.run(results.get(_text(key)))
        return found

    def mget(self, keys: Iterable[str | bytes]) -> list[bytes | None]:
        """Return stored values, in order."""
        return [self.get(key) for key in keys]

    def set(self, key: str | bytes, value: str | bytes) -> None:
        """Store a value durably."""
        session, results = self._topic()
        session.run(results.put(_text(key), value.encode() if isinstance(value, str) else value))

    def delete(self, key: str | bytes) -> None:
        """Delete a value."""
        session, results = self._topic()
        session.run(results.put(_text(key), None))

    def close(self) -> None:
        """Disconnect; the next use connects again."""
        session, self._session, self._results = self._session, None, None
        if session is not None:
            session.close()


def _text(key: str | bytes) -> str:
    return key.decode() if isinstance(key, bytes) else key
