"""Members of groups get codes after which every client looks for the coordinator again."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from sparrow.base import errors
from sparrow.cluster.errors import LedgerUnavailable, NotOwner
from sparrow.frontends.kafka.errors import group_code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.Draining("the broker stops"), ErrorCode.not_coordinator),
        (NotOwner("another broker owns the data by now"), ErrorCode.not_coordinator),
        (LedgerUnavailable("PostgreSQL is away"), ErrorCode.coordinator_not_available),
        (errors.Overloaded("too much waits"), ErrorCode.coordinator_not_available),
        (errors.StorageFailed("the disk failed"), ErrorCode.coordinator_not_available),
        (errors.UnknownMember("there is no such member"), ErrorCode.unknown_member_id),
    ],
)
def test_failures_that_pass_send_members_to_the_coordinator(
    error: errors.SparrowError, code: ErrorCode
) -> None:
    assert group_code(error) is code
