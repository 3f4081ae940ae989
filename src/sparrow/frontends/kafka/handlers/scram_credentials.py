"""DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.alter_user_scram_credentials.v0.response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from kio.schema.describe_user_scram_credentials.v0.response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kio.schema.errors import ErrorCode

from sparrow.base.errors import SparrowError
from sparrow.broker.access.credentials import Deletion, Upsertion
from sparrow.broker.access.scram import Mechanism
from sparrow.frontends.kafka.call import NO_THROTTLE
from sparrow.frontends.kafka.errors import code_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kio.schema.alter_user_scram_credentials.v0.request import AlterUserScramCredentialsRequest
    from kio.schema.describe_user_scram_credentials.v0.request import DescribeUserScramCredentialsRequest

    from sparrow.frontends.kafka.call import Call
    from sparrow.model.access import UserListing

_NUMBER_OF: Final = {Mechanism.SHA_256.value: 1, Mechanism.SHA_512.value: 2}
_NAME_OF: Final = {number: name for name, number in _NUMBER_OF.items()}


def describe(
    request: DescribeUserScramCredentialsRequest, call: Call
) -> DescribeUserScramCredentialsResponse:
    """Return mechanisms and iterations of some users, or of all."""
    names = [user.name for user in request.users or ()]
    try:
        found = call.broker.users.describe(names, principal=call.principal)
    except SparrowError as error:
        denied = tuple(_described(name, error) for name in dict.fromkeys(names))
        return DescribeUserScramCredentialsResponse(
            throttle_time=NO_THROTTLE,
            error_code=code_of(error),
            error_message=error.text,
            results=denied,
        )
    return DescribeUserScramCredentialsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        results=tuple(_described(name, info) for name, info in found.items()),
    )


def _described(name: str, found: UserListing | SparrowError) -> DescribeUserScramCredentialsResult:
    if isinstance(found, SparrowError):
        return DescribeUserScramCredentialsResult(
            user=name, error_code=code_of(found), error_message=found.text, credential_infos=()
        )
    infos = tuple(
        CredentialInfo(mechanism=_NUMBER_OF[mechanism], iterations=iterations)
        for mechanism, iterations in found.credentials
    )
    return DescribeUserScramCredentialsResult(
        user=name, error_code=ErrorCode.none, error_message=None, credential_infos=infos
    )


async def alter(request: AlterUserScramCredentialsRequest, call: Call) -> AlterUserScramCredentialsResponse:
    """Set and delete credentials; each user has one outcome."""
    deletions = [Deletion(each.name, _NAME_OF.get(each.mechanism, "")) for each in request.deletions]
    upsertions = [
        Upsertion(
            each.name, _NAME_OF.get(each.mechanism, ""), each.iterations, each.salt, each.salted_password
        )
        for each in request.upsertions
    ]
    try:
        outcome = await call.broker.users.alter(upsertions, deletions, principal=call.principal)
    except SparrowError as error:
        names = {each.user for each in deletions} | {each.user for each in upsertions}
        return _altered((name, error) for name in sorted(names))
    return _altered(outcome.items())


def _altered(outcome: Iterable[tuple[str, SparrowError | None]]) -> AlterUserScramCredentialsResponse:
    results = tuple(
        AlterUserScramCredentialsResult(
            user=name,
            error_code=ErrorCode.none if error is None else code_of(error),
            error_message=None if error is None else error.text,
        )
        for name, error in outcome
    )
    return AlterUserScramCredentialsResponse(throttle_time=NO_THROTTLE, results=results)
