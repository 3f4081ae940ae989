"""UpdateFeatures (KIP-584, KIP-778): the levels are those that this broker implements, so only
updates that change nothing succeed.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode
from kio.schema.update_features.v0.response import UpdatableFeatureResult as FeatureResult0
from kio.schema.update_features.v0.response import UpdateFeaturesResponse as UpdateFeaturesResponse0
from kio.schema.update_features.v1.response import UpdatableFeatureResult as FeatureResult1
from kio.schema.update_features.v1.response import UpdateFeaturesResponse as UpdateFeaturesResponse1
from kio.schema.update_features.v2.response import UpdateFeaturesResponse

from sparrow.base.errors import SparrowError
from sparrow.broker.access.authz import Operation
from sparrow.frontends.kafka.call import NO_THROTTLE
from sparrow.frontends.kafka.errors import DONE, RequestOutcome, outcome_of
from sparrow.frontends.kafka.handlers.api_versions import FEATURES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.frontends.kafka.call import Call

_UPGRADE: Final = 1
_SAFE_DOWNGRADE: Final = 2
_UNSAFE_DOWNGRADE: Final = 3
_KINDS: Final = (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE)
_RESPONSES: Final = {
    0: (UpdateFeaturesResponse0, FeatureResult0),
    1: (UpdateFeaturesResponse1, FeatureResult1),
}


def update(request: Any, call: Call) -> Any:
    """Accept all updates or none. Versions 0 and 1 return an outcome per feature, later ones a
    single one.
    """
    outcome = _outcome(request.feature_updates, call)
    if call.version not in _RESPONSES:
        return UpdateFeaturesResponse(
            throttle_time=NO_THROTTLE, error_code=outcome.code, error_message=outcome.text
        )
    response, result = _RESPONSES[call.version]
    names = [update.feature for update in request.feature_updates] if outcome == DONE else []
    return response(
        throttle_time=NO_THROTTLE,
        error_code=outcome.code,
        error_message=outcome.text,
        results=tuple(result(feature=name, error_code=ErrorCode.none, error_message=None) for name in names),
    )


def _outcome(updates: Sequence[Any], call: Call) -> RequestOutcome:
    try:
        call.broker.access.require_cluster(call.principal, Operation.ALTER)
    except SparrowError as error:
        return outcome_of(error)
    if any(count > 1 for count in Counter(update.feature for update in updates).values()):
        return RequestOutcome(ErrorCode.invalid_request, "Each feature may be updated once.")
    for update in updates:
        refused = _refused(update.feature, update.max_version_level, _kind(update), call.frontend.node_id)
        if refused is not None:
            return RequestOutcome(
                refused.code,
                "The update failed for all features since the following feature had an error: "
                f"{refused.text}",
            )
    return DONE


def _kind(update: Any) -> int:
    """Return the type of an update; version 0 only says if a downgrade is allowed."""
    if hasattr(update, "allow_downgrade"):
        return _SAFE_DOWNGRADE if update.allow_downgrade else _UPGRADE
    return int(update.upgrade_type)


def _refused(name: str, level: int, kind: int, node_id: int) -> RequestOutcome | None:
    """Return the reason why a feature cannot have a level; None if it has it."""
    if name in FEATURES and level == FEATURES[name][2] and kind in _KINDS:
        return None
    invalid = _invalid(name, level, kind, node_id)
    if invalid:
        return RequestOutcome(ErrorCode.invalid_update_version, invalid)
    return RequestOutcome(
        ErrorCode.feature_update_failed,
        f"{name} stays at level {FEATURES[name][2]}: the levels of this broker cannot be changed.",
    )


def _invalid(name: str, level: int, kind: int, node_id: int) -> str:
    """Return the reason why an update is invalid, or ""."""
    if kind not in _KINDS:
        return f"The controller does not support the given upgrade type {kind}."
    start = f"Invalid update version {level} for feature {name}."
    if name not in FEATURES:
        return f"{start} Local controller {node_id} does not support this feature."
    low, high, now = FEATURES[name]
    if level < 0:
        return f"{start} A feature version cannot be less than 0."
    if level < now and kind == _UPGRADE:
        return (
            f"{start} Can't downgrade the version of this feature without setting the upgrade type "
            "to either safe or "
            "unsafe downgrade."
        )
    if not low <= level <= high:
        return f"{start} Local controller {node_id} only supports versions {low}-{high}."
    return ""
