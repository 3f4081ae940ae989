"""Which APIs the door serves, in which versions, and who handles them: one row for each key.

A handler is named by module and function under `handlers/`; it is imported at the first request. It is written for one version of
the message (the newest of its range unless the row says otherwise): older requests are lifted to it, and its answer is written as
the version that was asked for. Where the shape of a message changed so much that one class cannot stand for all, a key has several
routes. `docs/kafka.md` shows this table; a test compares them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Route:
    """Versions of one key that one handler serves. `schema`: the version its classes are of; -1: each request as it came."""

    first: int
    last: int
    handler: str
    schema: int


@dataclass(frozen=True, slots=True)
class Api:
    """One key. `advertised_from`: the lowest version that ApiVersions names, where that is not the lowest one served."""

    key: int
    name: str
    routes: tuple[Route, ...]
    advertised_from: int | None = None
    needs_authentication: bool = True

    @property
    def first(self) -> int:
        return self.routes[0].first

    @property
    def last(self) -> int:
        return self.routes[-1].last

    def route(self, version: int) -> Route | None:
        """Who serves a version; None: it is not served."""
        for route in self.routes:
            if route.first <= version <= route.last:
                return route
        return None


def _api(key: int, name: str, first: int, last: int, handler: str) -> Api:
    return Api(key, name, (Route(first, last, handler, last),))


_ROWS = (
    # Kafka names version 0 of Produce although it refuses 0 to 2, because librdkafka looks for it (KAFKA-18659).
    Api(0, "Produce", (Route(3, 13, "produce:handle", -1),), advertised_from=0),
    Api(1, "Fetch", (Route(4, 18, "fetch:handle", -1),)),
    _api(2, "ListOffsets", 1, 11, "list_offsets:handle"),
    _api(3, "Metadata", 0, 13, "metadata:handle"),
    Api(17, "SaslHandshake", (Route(0, 1, "sasl:handshake", 1),), needs_authentication=False),
    Api(18, "ApiVersions", (Route(0, 4, "api_versions:handle", 4),), needs_authentication=False),
    _api(23, "OffsetForLeaderEpoch", 2, 4, "leader_epochs:handle"),
    Api(36, "SaslAuthenticate", (Route(0, 2, "sasl:authenticate", 2),), needs_authentication=False),
    _api(50, "DescribeUserScramCredentials", 0, 0, "scram_credentials:describe"),
    _api(51, "AlterUserScramCredentials", 0, 0, "scram_credentials:alter"),
)

APIS: dict[int, Api] = {row.key: row for row in _ROWS}
