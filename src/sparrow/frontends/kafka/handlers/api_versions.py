"""ApiVersions (KIP-35, KIP-511, KIP-584): the served APIs and their versions."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from kio.schema.api_versions.v4.response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kio.schema.errors import ErrorCode

from sparrow.frontends.kafka.apis import APIS
from sparrow.frontends.kafka.call import NO_THROTTLE
from sparrow.frontends.kafka.codec.responses import write_response

if TYPE_CHECKING:
    from kio.schema.api_versions.v4.request import ApiVersionsRequest

    from sparrow.frontends.kafka.call import Call
    from sparrow.frontends.kafka.codec.responses import Piece

FEATURES: dict[str, tuple[int, int, int]] = {
    # name: lowest supported, highest supported, finalized level
    "group.version": (0, 1, 1),
    "metadata.version": (7, 29, 29),
    "share.version": (0, 1, 1),
    "transaction.version": (0, 2, 2),
}
"""Feature levels (KIP-584). They decide what clients use: transaction.version 2 enables KIP-890,
group.version 1 KIP-848, share.version 1 KIP-932.
"""
_FIRST_WITH_LEVEL_0 = 4
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse:
    """Return the served versions; allowed before authentication, too."""
    if call.version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not _SOFTWARE.fullmatch(name) or not _SOFTWARE.fullmatch(version):
            return _response(ErrorCode.invalid_request, call.version)
    return _response(ErrorCode.none, call.version)


def unsupported(call: Call) -> list[Piece]:
    """Return the response to an unknown version: version 0 with error 35, which contains the
    versions of ApiVersions (KIP-511).
    """
    response = _response(ErrorCode.unsupported_version, 0)
    return write_response(call.header.api_key, 0, call.header.correlation_id, response)


@cache
def _response(code: ErrorCode, version: int) -> ApiVersionsResponse:
    has_all = code is not ErrorCode.invalid_request
    # Java clients before 3.9 disconnect if a feature's lowest level is 0; as in Kafka, they get 1
    # (KAFKA-17011).
    least = 0 if version >= _FIRST_WITH_LEVEL_0 else 1
    return ApiVersionsResponse(
        error_code=code,
        api_keys=_api_keys() if has_all else (),
        throttle_time=NO_THROTTLE,
        supported_features=tuple(
            SupportedFeatureKey(name=name, min_version=max(low, least), max_version=high)
            for name, (low, high, _) in FEATURES.items()
        ),
        finalized_features_epoch=1,
        finalized_features=tuple(
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, (_, _, level) in FEATURES.items()
        ),
    )


def _api_keys() -> tuple[ApiVersion, ...]:
    return tuple(
        ApiVersion(
            api_key=key,
            min_version=api.first if api.advertised_from is None else api.advertised_from,
            max_version=api.last,
        )
        for key, api in sorted(APIS.items())
    )
